package certs

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"
)

// ErrForeign: the folder holds files that certs did not write.
var ErrForeign = errors.New("certs did not write this folder")

// files are the contents of our files by name; empty for an empty or missing folder.
type files map[string][]byte

// order is the order of writing. The kustomization is last: the folder cannot be used
// without it. .gitignore is first: no key is ever open to Git. The previous CA is written
// before the current one: a kill between the two loses no CA that is still trusted.
var order = []string{FileGitignore, FilePreviousCA, FileCACert, FileCAKey, FilePatch, FileTLS, FileToken, FileKustomization}

// readFolder reads our files, and rejects a folder of foreign ones.
func readFolder(dir string) (files, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read --out: %w", err)
	}
	found := files{}
	for _, name := range order {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			found[name] = content
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read --out: %w", err)
		}
	}
	if !strings.HasPrefix(string(found[FileKustomization]), componentHeader) {
		return nil, fmt.Errorf("%w: %s has files in it, %s among them, and no %s of certs; choose another folder or empty it", ErrForeign, dir, entries[0].Name(), FileKustomization)
	}
	return found, nil
}

// checkModes rejects a file that other users can read.
func checkModes(dir string) error {
	for _, name := range []string{FileCAKey, FileTLS, FileToken} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			continue // decode reports a missing file
		}
		if mode := info.Mode().Perm(); mode&0o077 != 0 {
			return fmt.Errorf("%s has mode %#o: other users may have read it; if none did, chmod 600 it, otherwise replace everything with --renew %s", name, mode, RenewAll)
		}
	}
	return nil
}

// decode returns an error with the file's name for a damaged one, and for one that other
// users can read. Errors do not contain the input.
func (f files) decode(dir string) (m *material, err error) {
	if err := checkModes(dir); err != nil {
		return nil, err
	}
	m = &material{}
	if m.current, err = ParseAuthorities(f[FileCACert]); err != nil {
		return nil, fmt.Errorf("%s: %w", FileCACert, err)
	}
	if previous := f[FilePreviousCA]; previous != nil {
		if m.previous, err = ParseAuthorities(previous); err != nil {
			return nil, fmt.Errorf("%s: %w", FilePreviousCA, err)
		}
	}
	data, err := f.secret(FileToken)
	if err != nil {
		return nil, err
	}
	tokens := strings.Fields(string(data[KeyToken]))
	if len(tokens) == 0 || len(tokens) > 2 {
		return nil, fmt.Errorf("%s: want one token, or two during a rotation, under %s; found %d", FileToken, KeyToken, len(tokens))
	}
	m.token, m.previousToken = tokens[0], strings.Join(tokens[1:], "")
	if f[FileCAKey] == nil {
		return m, nil // the authority of --ca-file
	}
	if m.ca, err = newPair(encode(m.current[:1]), f[FileCAKey]); err != nil {
		return nil, fmt.Errorf("%s does not fit %s: %w", FileCAKey, FileCACert, err)
	}
	if data, err = f.secret(FileTLS); err != nil {
		return nil, err
	}
	if m.server, err = newPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey]); err != nil {
		return nil, fmt.Errorf("%s: %w", FileTLS, err)
	}
	return m, nil
}

// secret returns the data of the manifest of a Secret.
func (f files) secret(name string) (map[string][]byte, error) {
	var s corev1.Secret
	if yaml.Unmarshal(f[name], &s) != nil { // the cause may contain the text
		return nil, fmt.Errorf("%s: is not the manifest of a Secret", name)
	}
	return s.Data, nil
}

// ParseAuthorities parses the PEM certificates of certificate authorities, and rejects
// private keys: the result is stored in an object with many readers. Errors do not
// contain the input.
func ParseAuthorities(data []byte) ([]*x509.Certificate, error) {
	if bytes.Contains(data, []byte("PRIVATE KEY")) {
		return nil, errors.New("found a private key, want only certificates")
	}
	certs, err := cert.ParseCertsPEM(data)
	if err != nil {
		return nil, err
	}
	if blocks := bytes.Count(data, []byte("-----BEGIN")); blocks != len(certs) {
		return nil, fmt.Errorf("%d of %d PEM blocks are certificates; the file is truncated or holds something else", len(certs), blocks)
	}
	for _, c := range certs {
		if !c.IsCA {
			return nil, fmt.Errorf("certificate %q is not one of a certificate authority", c.Subject)
		}
	}
	return certs, nil
}

func encode(certs []*x509.Certificate) []byte {
	encoded, _ := cert.EncodeCertificates(certs...) // fails only on a nil certificate
	return encoded
}

// differences returns a defect with the names of the files that differ from want, if any.
func (f files) differences(want files) []string {
	names := slices.DeleteFunc(slices.Clone(order), func(name string) bool { return bytes.Equal(f[name], want[name]) })
	if len(names) == 0 {
		return nil
	}
	return []string{strings.Join(names, ", ") + ": not what this run writes; were they edited, or written with other flags?"}
}

// write writes f into dir, readable by the owner only and each file atomically, and
// removes our files that are not in f. The next run detects the mismatch that a killed
// run leaves.
func (f files) write(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create --out: %w", err)
	}
	for _, name := range order {
		path := filepath.Join(dir, name)
		var err error
		if f[name] != nil {
			err = writeFile(path, f[name])
		} else if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

func writeFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
