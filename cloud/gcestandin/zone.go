package gcestandin

// ZoneMode says whether a zone answers.
type ZoneMode string

const (
	// ZoneUp answers. It is the zero value.
	ZoneUp ZoneMode = ""
	// ZoneUnreachable does not answer, and lists name it in a warning on their
	// first page.
	ZoneUnreachable ZoneMode = "unreachable"
	// ZoneUnreachableLate is ZoneUnreachable with the warning on the last page.
	ZoneUnreachableLate ZoneMode = "unreachable-late"
	// ZoneSilent does not answer, and lists leave it out with no more than a
	// warning that something is missing.
	ZoneSilent ZoneMode = "silent"
)

func (m ZoneMode) known() bool {
	switch m {
	case ZoneUp, ZoneUnreachable, ZoneUnreachableLate, ZoneSilent:
		return true
	}
	return false
}

// SetZone changes whether a zone answers. VMs in it live on.
func (s *Server) SetZone(zone string, mode ZoneMode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zones[zone] = mode
}
