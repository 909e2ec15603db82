package discovery

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// release ends a lease. The answer is 204 also when there is no such lease: it
// is over, as asked, and a client that did not get the first answer may ask
// again.
func (s *Server) release(r *http.Request) (response, error) {
	if err := s.store.Release(r.Context(), chi.URLParam(r, "id")); err != nil {
		return response{}, storeError(err)
	}
	return response{status: http.StatusNoContent}, nil
}

// report takes a crawler's word on how it fared.
func (s *Server) report(r *http.Request) (response, error) {
	var result, target string
	if err := decodeBody(r, fields{"result": &result, "target": &target}); err != nil {
		return response{}, err
	}
	rep := lease.Report{Result: lease.Result(result)}
	if !rep.Result.Known() {
		return response{}, failf(codeInvalidResult, "result %q is not known; want one of %q", clip(result), lease.Results())
	}
	var err error
	if rep.Target, err = normalizeTarget(target); err != nil {
		return response{}, err
	}
	if err := s.store.Report(r.Context(), chi.URLParam(r, "id"), rep); err != nil {
		return response{}, storeError(err)
	}
	s.metrics.leaseReport(rep.Result)
	return response{status: http.StatusNoContent}, nil
}
