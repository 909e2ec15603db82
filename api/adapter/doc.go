// Package adapter is the contract between the hooks and the cloud adapter: the
// wire types, their strict codec and the client.
//
// The adapter is level-triggered. PUT says which instance should be and DELETE
// that none should; both answer at once with what is, and the work goes on in
// the background. Callers repeat the call until the answer satisfies them.
//
//	PUT    /v1/instances/{provider}/{name}                    -> Instance
//	DELETE /v1/instances/{provider}/{name}?uid=&providerID=   -> Instance
//	GET    /v1/instances                                      -> List
//
// Every other status than 200 carries an ErrorBody. 503 with Retry-After means
// that the adapter does not know the answer yet: it has not listed that
// provider, or another adapter is the one that may act.
package adapter
