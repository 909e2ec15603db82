package gcestandin

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/ptr"
)

// maxPage is Compute's largest and default page.
const maxPage = 500

var filterPattern = regexp.MustCompile(`^labels\.([a-z0-9_-]+)\s*=\s*"?([a-z0-9_-]*)"?$`)

// ZoneMode is whether a zone responds.
type ZoneMode string

const (
	// ZoneUp responds. It is the zero value.
	ZoneUp ZoneMode = ""
	// ZoneUnreachable does not respond; lists have a warning with its name on their
	// first page.
	ZoneUnreachable ZoneMode = "unreachable"
	// ZoneUnreachableLate is ZoneUnreachable with the warning on the last page.
	ZoneUnreachableLate ZoneMode = "unreachable-late"
	// ZoneSilent does not respond; lists omit it, with a warning that does not name it.
	ZoneSilent ZoneMode = "silent"
)

var zoneModes = []ZoneMode{ZoneUp, ZoneUnreachable, ZoneUnreachableLate, ZoneSilent}

// SetZone changes whether a zone responds. Its VMs keep running.
func (s *Server) SetZone(zone string, mode ZoneMode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zones[zone] = mode
}

func (s *Server) list(r *http.Request, _ []byte, _ *Fault) (proto.Message, *apiError) {
	matches, bad := parseFilter(r.URL.Query().Get("filter"))
	if bad != nil {
		return nil, bad
	}
	size, from, bad := parsePage(r)
	if bad != nil {
		return nil, bad
	}
	all := s.listed(matches)
	if from > len(all) {
		return nil, invalid("pageToken", r.URL.Query().Get("pageToken"), "The token is not valid.")
	}
	to := min(from+size, len(all))
	page := s.page(all[from:to])
	if to < len(all) {
		page.NextPageToken = ptr.To("from-" + strconv.Itoa(to))
	}
	s.warn(page, from == 0, to == len(all))
	return page, nil
}

// listed returns the VMs of a list, which is stale by ListLag.
func (s *Server) listed(matches func(*computepb.Instance) bool) []*computepb.Instance {
	now := s.opts.Clock.Now()
	asOf := now.Add(-s.opts.Timing.ListLag)
	var out []*computepb.Instance
	for _, v := range append(s.sorted(), s.gone...) {
		visible := !v.created.After(asOf) && (v.goneAt.IsZero() || v.goneAt.After(asOf))
		if visible && s.zones[v.zone] == ZoneUp && matches(v.resource) {
			out = append(out, s.wire(v, now))
		}
	}
	return out
}

// page groups instances by zone, with the warning that Compute gives for zones without
// any.
func (s *Server) page(instances []*computepb.Instance) *computepb.InstanceAggregatedList {
	items := map[string]*computepb.InstancesScopedList{}
	for _, zone := range s.opts.Zones {
		if s.zones[zone] == ZoneUp {
			items["zones/"+zone] = &computepb.InstancesScopedList{}
		}
	}
	for _, inst := range instances {
		scope := "zones/" + inst.GetZone()[strings.LastIndex(inst.GetZone(), "/")+1:]
		items[scope].Instances = append(items[scope].Instances, inst)
	}
	for scope, list := range items {
		if len(list.Instances) == 0 {
			list.Warning = warning("NO_RESULTS_ON_PAGE", scope, fmt.Sprintf("There are no results for scope '%s' on this page.", scope))
		}
	}
	return &computepb.InstanceAggregatedList{Kind: ptr.To("compute#instanceAggregatedList"), Items: items}
}

// warn adds the unreachable zones to the first or the last page.
func (s *Server) warn(page *computepb.InstanceAggregatedList, first, last bool) {
	for _, zone := range slices.Sorted(maps.Keys(s.zones)) {
		scope := "zones/" + zone
		switch mode := s.zones[zone]; {
		case mode == ZoneUnreachable && first, mode == ZoneUnreachableLate && last:
			page.Items[scope] = &computepb.InstancesScopedList{Warning: warning("UNREACHABLE", scope, "The scope '"+scope+"' is currently unreachable.")}
			page.Unreachables = append(page.Unreachables, scope)
		case mode == ZoneSilent && last:
			page.Warning = &computepb.Warning{Code: ptr.To("PARTIAL_SUCCESS"), Message: ptr.To("The list is not complete.")}
		}
	}
}

func warning(code, scope, message string) *computepb.Warning {
	return &computepb.Warning{
		Code: ptr.To(code), Message: ptr.To(message),
		Data: []*computepb.Data{{Key: ptr.To("scope"), Value: ptr.To(scope)}},
	}
}

// parseFilter supports labels.KEY=VALUE alone, with or without quotes.
func parseFilter(filter string) (func(*computepb.Instance) bool, *apiError) {
	if filter == "" {
		return func(*computepb.Instance) bool { return true }, nil
	}
	m := filterPattern.FindStringSubmatch(filter)
	if m == nil {
		return nil, invalid("filter", filter, "Invalid list filter expression.")
	}
	return func(inst *computepb.Instance) bool { return inst.GetLabels()[m[1]] == m[2] }, nil
}

func parsePage(r *http.Request) (size, from int, bad *apiError) {
	q := r.URL.Query()
	size = maxPage
	if text := q.Get("maxResults"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > maxPage {
			return 0, 0, invalid("maxResults", text, "Must be between 0 and 500.")
		}
		if n > 0 {
			size = n
		}
	}
	if token := q.Get("pageToken"); token != "" {
		n, err := strconv.Atoi(strings.TrimPrefix(token, "from-"))
		if err != nil || n < 0 {
			return 0, 0, invalid("pageToken", token, "The token is not valid.")
		}
		from = n
	}
	return size, from, nil
}
