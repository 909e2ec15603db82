// Package gcestandin is a Compute Engine for tests and laptops: it speaks the
// REST wire of instances insert, get, delete and aggregatedList and of
// zoneOperations get to Google's own client, with the habits that make the real
// one hard: failures that come only with the operation, names that stay taken
// while a VM is being deleted, lists that leave out a zone and say so in a
// warning, answers that get lost.
//
// Faults are scripted through the methods of Server or, for the process form,
// over HTTP under /control. Time is read from a clock, so that tests can move
// it. A Runner gives every running VM a life, such as a proxy process.
package gcestandin
