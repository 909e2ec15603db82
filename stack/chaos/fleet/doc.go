// Package fleet is the Proxies of a fault campaign, and the users who make,
// edit, delete and re-create them. It writes down all that they do.
package fleet
