// Command images makes container images of our programs, and of squid for tests,
// without a registry and without a container engine: one OCI layout that holds
// them all, and one tar of it that containerd, podman and skopeo read.
//
// An image of ours is one static program, the certificate authorities, a user
// database with the one user that it runs as, and nothing else. Beside the layout
// is an SBOM per program, in SPDX.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

type options struct {
	programs []string
	binDir   string
	rootCAs  string
	squid    string
	out      string
	prefix   string
	version  string
	revision string
	created  time.Time
}

func parse(args []string, out io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("images", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.StringVar(&o.binDir, "bin", "", "`folder` with the programs, statically linked")
	programs := fs.String("programs", "webhooks,cloud,prober,discovery", "`names` of the programs to make images of")
	fs.StringVar(&o.rootCAs, "root-cas", "/etc/ssl/certs/ca-certificates.crt", "`file` with the certificate authorities that programs trust")
	fs.StringVar(&o.squid, "squid", "", "tar `file` with a root file system with squid, to make an image of as well")
	fs.StringVar(&o.out, "out", "", "`folder` to write to; what an earlier run left there is replaced")
	fs.StringVar(&o.prefix, "prefix", "egress-proxies", "what image `names` start with, such as registry.example.com/egress-proxies")
	fs.StringVar(&o.version, "version", "dev", "tag of the images")
	fs.StringVar(&o.revision, "revision", "", "commit that the programs were built from")
	created := fs.Int64("created", 0, "`seconds` since 1970 that the images say they were made at; of the commit, so that two builds give the same images")
	if err := fs.Parse(args); err != nil {
		return options{}, err
	}
	o.programs, o.created = strings.Split(*programs, ","), time.Unix(*created, 0).UTC()
	if o.binDir == "" || o.out == "" || fs.NArg() > 0 {
		return options{}, errors.New("want --bin and --out, and no arguments; see --help")
	}
	return o, nil
}

func run(args []string, out io.Writer) error {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	for _, left := range []string{"oci", "sbom"} {
		if err := os.RemoveAll(filepath.Join(o.out, left)); err != nil {
			return fmt.Errorf("remove what an earlier run left: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Join(o.out, "sbom"), 0o755); err != nil {
		return fmt.Errorf("make the folder for SBOMs: %w", err)
	}
	l, err := newLayout(filepath.Join(o.out, "oci"))
	if err != nil {
		return err
	}
	for _, program := range o.programs {
		if err := addProgram(l, o, program, out); err != nil {
			return fmt.Errorf("image of %s: %w", program, err)
		}
	}
	if o.squid != "" {
		if err := addSquid(l, o, out); err != nil {
			return fmt.Errorf("image of squid: %w", err)
		}
	}
	return l.archive(filepath.Join(o.out, "images.tar"))
}

func addProgram(l *imageLayout, o options, program string, out io.Writer) error {
	path := filepath.Join(o.binDir, program)
	if err := checkStatic(path); err != nil {
		return err
	}
	image, err := programImage(o, program, path)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s/%s:%s", o.prefix, program, o.version)
	digest, err := l.add(image, name)
	if err != nil {
		return err
	}
	bom, err := sbom(program, path, o)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.out, "sbom", program+".spdx.json"), bom, 0o644); err != nil {
		return fmt.Errorf("write SBOM: %w", err)
	}
	fmt.Fprintf(out, "%s %s\n", name, digest)
	return nil
}

func addSquid(l *imageLayout, o options, out io.Writer) error {
	image, err := squidImage(o)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s/squid:%s", o.prefix, o.version)
	digest, err := l.add(image, name)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s %s\n", name, digest)
	return nil
}
