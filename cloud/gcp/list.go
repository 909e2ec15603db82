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
	pageSize    = 500                  // Compute's largest
	maxPages    = 1000                 // bounds an endless list: half a million VMs
	noResults   = "NO_RESULTS_ON_PAGE" // the one warning of a complete page
	unreachable = "UNREACHABLE"        // the warning that the page's unreachables explain
	zonePrefix  = "zones/"             // of a scope's name
)

// List is instances.aggregatedList, all pages of it, of the installation's VMs. It
// returns when ctx ends, although the client's call goes on in the background until
// the HTTP client's timeout.
func (c *Cloud) List(ctx context.Context) (provider.Listing, error) {
	if err := ctx.Err(); err != nil {
		return provider.Listing{}, fromHTTP("list", c.Account(), err, "")
	}
	type result struct {
		listing provider.Listing
		err     error
	}
	done := make(chan result, 1)
	go func() {
		listing, err := c.list(ctx)
		done <- result{listing, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return provider.Listing{}, fromHTTP("list", c.Account(), r.err, "")
		}
		return r.listing, nil
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
			return provider.Listing{}, err
		}
		pages.add(page)
		next := page.GetNextPageToken()
		if next == "" {
			return pages.listing(), nil
		}
		if next == token {
			return provider.Listing{}, fmt.Errorf("page %q leads to itself", token)
		}
		if err := ctx.Err(); err != nil {
			return provider.Listing{}, err
		}
		token = next
	}
	return provider.Listing{}, fmt.Errorf("more than %d pages", maxPages)
}

// page fetches exactly one page. The iterator's public methods prefetch, and
// return the warnings of the last page only.
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

// pages merges the pages of a list, with their warnings.
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
		named = p.addUnreachable(scope) || named
	}
	warning := page.GetWarning()
	code := warning.GetCode()
	if code == "" || code == noResults {
		return
	}
	named = named && code == unreachable // the unreachables explain no other warning
	for _, data := range warning.GetData() {
		if data.GetKey() == "scope" {
			named = p.addUnreachable(data.GetValue()) || named
		}
	}
	// A warning that names no zone may concern any.
	p.partial = p.partial || !named
}

func (p *pages) addScope(scope string, list *computepb.InstancesScopedList) {
	zone, isZone := strings.CutPrefix(scope, zonePrefix)
	if code := list.GetWarning().GetCode(); code != "" && code != noResults {
		p.addUnreachable(scope)
	} else if isZone {
		p.answered[zone] = true
	}
	for _, in := range list.GetInstances() {
		inst := fromWire(zoneOf(in.GetZone()), in)
		p.instances[inst.Ref] = inst
	}
}

// addUnreachable records an unreachable scope and reports whether it is one zone.
// Any other scope makes the list partial.
func (p *pages) addUnreachable(scope string) bool {
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
