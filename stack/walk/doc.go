// Package walk walks a running stack through the whole job of the system, step
// by step, shows what it sees and checks it: it is what `make demo` prints.
package walk
