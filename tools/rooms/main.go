// Command rooms measures the words and the layout of the Go code, and fails when
// a figure is past its goal. `make lint` runs it. It holds what no analyzer can see
// in one package alone. The goals are those that
// CONTRIBUTING.md states under "Words" and "Where things are".
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout)) }

func run(args []string, out io.Writer) int {
	fs := flag.NewFlagSet("rooms", flag.ContinueOnError)
	fs.SetOutput(out)
	root := fs.String("root", "..", "`folder` of the checkout")
	list := fs.String("list", "", "list each comment line under this `folder` that has a word to avoid")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	files, err := readTree(*root)
	if err != nil {
		fmt.Fprintln(out, "rooms:", err)
		return 1
	}
	if *list != "" {
		listWords(out, files, *list)
		return 0
	}
	problems := slices.Concat(reportWords(out, files), reportLayout(out, files), reportGoroutines(files))
	for _, p := range problems {
		fmt.Fprintln(out, "rooms:", p)
	}
	if len(problems) > 0 {
		return 1
	}
	return 0
}
