// Package witness watches a system under trial from outside and writes down what
// it sees: the API server's objects, the VM table of the Compute Engine
// stand-in, the process table, the figures of every process, and how starved of
// CPU the machine is. It changes nothing, and outlives outages of all that it
// looks at: it says when it saw nothing.
package witness
