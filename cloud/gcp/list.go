package gcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

const (
	// pageSize is Compute's largest.
	pageSize = 500
	// maxPages bounds a list that never ends: half a million VMs.
	maxPages = 1000
	// noResults is the one warning that says nothing is wrong.
	noResults = "NO_RESULTS_ON_PAGE"
	// unreachable is the warning that the list of unreachables explains.
	unreachable = "UNREACHABLE"
	// zonePrefix of a scope's name.
	zonePrefix = "zones/"
)

// List is instances.aggregatedList, all pages of it, of the installation's VMs.
// It returns when ctx ends although the client's call does not: that goes on
// alone until the HTTP client's time-out.
func (c *Cloud) List(ctx context.Context) (provider.Listing, error) {
	type answer struct {
		listing provider.Listing
		err     error
	}
	if err := ctx.Err(); err != nil {
		return provider.Listing{}, fromHTTP("list", c.Account(), err, "")
	}
	done := make(chan answer, 1)
	go func() {
		listing, err := c.list(ctx)
		done <- answer{listing, err}
	}()
	select {
	case a := <-done:
		return a.listing, a.err
	case <-ctx.Done():
		return provider.Listing{}, &provider.Error{Class: provider.ErrTransient, Op: "list", Target: c.Account(), Err: ctx.Err()}
	}
}

func (c *Cloud) list(ctx context.Context) (provider.Listing, error) {
	pages := newPages()
	token := ""
	for range maxPages {
		page, err := c.page(ctx, token)
		if err != nil {
			return provider.Listing{}, fromHTTP("list", c.Account(), err, "")
		}
		pages.add(page)
		next := page.GetNextPageToken()
		if next == "" {
			return pages.listing(), nil
		}
		if next == token {
			return provider.Listing{}, fromHTTP("list", c.Account(), fmt.Errorf("page %q leads to itself", token), "")
		}
		if err := ctx.Err(); err != nil {
			return provider.Listing{}, fromHTTP("list", c.Account(), err, "")
		}
		token = next
	}
	return provider.Listing{}, fromHTTP("list", c.Account(), fmt.Errorf("more than %d pages", maxPages), "")
}

// page fetches exactly one page. The iterator's public methods fetch as many as
// they please and show the warnings of the last one only.
func (c *Cloud) page(ctx context.Context, token string) (*computepb.InstanceAggregatedList, error) {
	it := c.instances.AggregatedList(ctx, &computepb.AggregatedListInstancesRequest{
		Project: c.cfg.Project,
		Filter:  ptr.To("labels." + LabelInstallation + "=" + c.installation),
	})
	if _, _, err := it.InternalFetch(pageSize, token); err != nil {
		return nil, err
	}
	page, ok := it.Response.(*computepb.InstanceAggregatedList)
	if !ok {
		return nil, errors.New("the client returned no page")
	}
	return page, nil
}

// pages collects what all pages of a list say, warnings included.
type pages struct {
	instances   map[provider.Ref]provider.Instance
	answered    map[string]bool
	unreachable map[string]bool
	partial     bool
}

func newPages() *pages {
	return &pages{
		instances: map[provider.Ref]provider.Instance{},
		answered:  map[string]bool{}, unreachable: map[string]bool{},
	}
}

func (p *pages) add(page *computepb.InstanceAggregatedList) {
	for scope, list := range page.GetItems() {
		p.addScope(scope, list)
	}
	named := false
	for _, scope := range page.GetUnreachables() {
		named = p.lost(scope) || named
	}
	warning := page.GetWarning()
	code := warning.GetCode()
	if code == "" || code == noResults {
		return
	}
	named = named && code == unreachable // other warnings are about something else
	for _, data := range warning.GetData() {
		if data.GetKey() == "scope" {
			named = p.lost(data.GetValue()) || named
		}
	}
	// A warning that names nothing may be about anything.
	p.partial = p.partial || !named
}

func (p *pages) addScope(scope string, list *computepb.InstancesScopedList) {
	zone, isZone := strings.CutPrefix(scope, zonePrefix)
	if code := list.GetWarning().GetCode(); code != "" && code != noResults {
		p.lost(scope)
	} else if isZone {
		p.answered[zone] = true
	}
	for _, in := range list.GetInstances() {
		inst := fromWire(zoneOf(in.GetZone()), in)
		p.instances[inst.Ref] = inst
	}
}

// lost notes a scope that did not answer and reports whether it is one zone.
// Anything wider leaves the list partial.
func (p *pages) lost(scope string) bool {
	// Compute writes scopes as zones/ZONE, projects/P/zones/ZONE or as a URL.
	i := strings.LastIndex(scope, zonePrefix)
	if i < 0 || strings.Contains(scope[i+len(zonePrefix):], "/") {
		p.partial = true
		return false
	}
	p.unreachable[scope[i+len(zonePrefix):]] = true
	return true
}

func (p *pages) listing() provider.Listing {
	return provider.Listing{
		Instances:   slices.Collect(maps.Values(p.instances)),
		Unreachable: slices.Sorted(maps.Keys(p.unreachable)),
		Partial:     p.partial,
		Answered:    p.answered,
	}
}
