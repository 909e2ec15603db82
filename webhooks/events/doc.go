// Package events sends Events about Proxies to the API server, best effort.
//
// It builds on the correlator of client-go's tools/record, which counts repeated
// Events up, combines similar ones and limits how many an object may cause
// (burst 25, then one in five minutes, separately for Normal and Warning). Not on
// its broadcaster, whose queue drops without a word to be counted; nor on
// tools/events, which has no limit, starts a goroutine for each Event, and merges
// those of one reason under the message of the first.
//
// Between the hooks and the API server is a queue with an end: an API server that
// is slow or gone makes the queue fill and Events be dropped, and never a hook
// wait.
package events
