// Package chaos breaks a whole local stack in every way that it knows, watches
// what the system does about it, and holds it to its promises.
package chaos
