package main

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"
)

func TestImportsPointOneWay(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), imports, module+"webhooks")
}

func TestPureRoomsOnlyDecide(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), pure, module+"prober/outage")
}

func TestPackageVariablesDoNotChange(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), state, module+"cmd/tables")
}

func TestExportedValuesAreCommented(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), comments, module+"discovery/values")
}

func TestDirection(t *testing.T) {
	for _, c := range []struct {
		from, to string
		allowed  bool
	}{
		{"cmd/webhooks", "webhooks", true},
		{"webhooks", "webhooks/proxy", true},
		{"webhooks/proxy", "webhooks", false},
		{"webhooks/squid", "webhooks/proxy", true},
		{"metacontroller/standin", "metacontroller", true},
		{"prober", "discovery", false},
		{"api/v1alpha1", "internal/flags", false},
		{"client", "api/v1alpha1", false},
		{"newroom", "api/v1alpha1", false},
	} {
		if got := direction(c.from, c.to); (got == "") != c.allowed {
			t.Errorf("%s imports %s: %q", c.from, c.to, got)
		}
	}
}

// A rule for a folder that has moved would hold nothing.
func TestRoomsOfTheRulesExist(t *testing.T) {
	rooms := append([]string{}, pureRooms...)
	for room := range mayImport {
		rooms = append(rooms, room)
	}
	for _, room := range append(rooms, processRooms...) {
		if info, err := os.Stat(filepath.Join("..", "..", room)); err != nil || !info.IsDir() {
			t.Errorf("the rules name the folder %s, which is not there", room)
		}
	}
}
