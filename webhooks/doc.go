// Package webhooks answers Metacontroller's customize, sync and finalize hooks
// for Proxies.
//
// The heart is decide, a pure function from an Observation to a Decision:
// what status to report, whether the instance is to be made, kept or removed,
// and when to look again. Around it, observe turns a request into an
// Observation, answer turns a Decision into children, and the handler does
// HTTP. Pods are children; VMs are not: the cloud adapter tells of them and is
// told what becomes of them, through the interface Adapter. The only state between
// requests is the replacement budget.
// What an answer changes is told in Events as well (edges), by a Recorder; package
// events has the real one.
//
// Unknown never means delete: an omitted child is a deleted child, so that
// whenever the wanted state cannot be told, every observed child is listed
// again.
package webhooks
