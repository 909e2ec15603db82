package stack

import (
	"errors"
	"fmt"
	"os"
)

// Scratch is a folder for what the users of a stack start beside it. When its process is killed,
// the next stack removes it as stale.
type Scratch struct{ folder *folder }

// NewScratch creates a folder that only its owner can enter, in home, which is Config.Home. Its
// path is short, as those of sockets must be.
func NewScratch(home string) (*Scratch, error) {
	f, err := newFolder(home)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(f.path, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("close the folder to others: %w", err), f.remove())
	}
	return &Scratch{folder: f}, nil
}

// Path of the folder.
func (s *Scratch) Path() string { return s.folder.path }

// Remove removes the folder and all in it.
func (s *Scratch) Remove() error { return s.folder.remove() }
