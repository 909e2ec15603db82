package certs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// ErrForeign: the folder holds files that certs did not write.
var ErrForeign = errors.New("certs did not write this folder")

// errAbsent: there is no folder, or an empty one.
var errAbsent = errors.New("the folder is empty or missing")

// load reads a folder. It returns errAbsent for an empty or missing folder, an error
// that wraps ErrForeign for one with foreign files, and an error with the file's name
// for a damaged one.
func load(dir string) (*material, error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errAbsent
	case err != nil:
		return nil, fmt.Errorf("read --out: %w", err)
	case len(entries) == 0:
		return nil, errAbsent
	}
	marker, err := os.ReadFile(filepath.Join(dir, FileKustomization))
	if err != nil || !strings.HasPrefix(string(marker), componentHeader) {
		return nil, fmt.Errorf("%w: %s has files in it, %s among them, and no %s of certs; choose another folder or empty it", ErrForeign, dir, entries[0].Name(), FileKustomization)
	}
	m, err := read(dir)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", dir, err)
	}
	return m, nil
}

// read decodes the files of a folder of ours.
func read(dir string) (*material, error) {
	m := &material{}
	var err error
	if m.current, err = readFile(dir, FileCACert, ParseAuthorities); err != nil {
		return nil, err
	}
	m.previous, err = readFile(dir, FilePreviousCA, ParseAuthorities)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	token, err := readFile(dir, FileToken, secretKey(KeyToken))
	if err != nil {
		return nil, err
	}
	tokens := strings.Fields(string(token))
	if len(tokens) == 0 || len(tokens) > 2 {
		return nil, fmt.Errorf("%s: want one token, or two during a rotation, under %s; found %d", FileToken, KeyToken, len(tokens))
	}
	m.token, m.previousToken = tokens[0], strings.Join(tokens[1:], "")
	m.caKey, err = readFile(dir, FileCAKey, parseKey)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil // the authority of --ca-file
	}
	if err != nil {
		return nil, err
	}
	return m, m.readServer(dir)
}

func (m *material) readServer(dir string) error {
	certPEM, err := readFile(dir, FileTLS, secretKey(corev1.TLSCertKey))
	if err != nil {
		return err
	}
	certs, err := parseCerts(certPEM)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", FileTLS, corev1.TLSCertKey, err)
	}
	keyPEM, err := readFile(dir, FileTLS, secretKey(corev1.TLSPrivateKeyKey))
	if err != nil {
		return err
	}
	m.serverCert = certs[0]
	if m.serverKey, err = parseKey(keyPEM); err != nil {
		return fmt.Errorf("%s: %s: %w", FileTLS, corev1.TLSPrivateKeyKey, err)
	}
	return nil
}

// readFile reads one file and rejects one that other users can read.
func readFile[T any](dir, name string, parse func([]byte) (T, error)) (T, error) {
	var none T
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	if err != nil {
		return none, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return none, fmt.Errorf("%s has mode %#o: other users may have read it; if none did, chmod 600 it, otherwise replace everything with --force", name, mode)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return none, err
	}
	parsed, err := parse(data)
	if err != nil {
		return none, fmt.Errorf("%s: %w", name, err)
	}
	return parsed, nil
}

// secretKey returns a parser for one key of a Secret manifest.
func secretKey(key string) func([]byte) ([]byte, error) {
	return func(manifest []byte) ([]byte, error) {
		var secret corev1.Secret
		if yaml.Unmarshal(manifest, &secret) != nil { // the cause may contain the text
			return nil, errors.New("is not the manifest of a Secret")
		}
		value := secret.Data[key]
		if len(value) == 0 {
			return nil, fmt.Errorf("lacks the key %s", key)
		}
		return value, nil
	}
}

// write writes files into dir, readable by the owner only and each atomically, and
// removes our files that are not among them. The kustomization is last: the folder
// cannot be used without it. The next run detects the mismatch that a killed run
// leaves.
func write(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create --out: %w", err)
	}
	for _, name := range []string{FilePreviousCA, FileCAKey, FileTLS} {
		if files[name] != nil {
			continue
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove a stale file: %w", err)
		}
	}
	order := slices.Sorted(maps.Keys(files)) // .gitignore comes first
	order = append(slices.DeleteFunc(order, func(name string) bool { return name == FileKustomization }), FileKustomization)
	for _, name := range order {
		if err := writeFile(dir, name, files[name]); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(dir, name string, content []byte) (err error) {
	f, err := os.CreateTemp(dir, name+".*.tmp") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", name, errors.Join(err, os.Remove(f.Name())))
		}
	}()
	if _, err = f.Write(content); err != nil {
		return errors.Join(err, f.Close())
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, name))
}
