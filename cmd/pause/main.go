// Command pause holds the namespaces of a Pod, on the node of `make e2e`: it does nothing until
// SIGTERM.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "pause holds the namespaces of a Pod on the node of `make e2e`, until it gets SIGTERM. It takes no arguments.")
		os.Exit(2)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
}
