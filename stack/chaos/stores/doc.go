// Package stores is where the discoveries of a fault campaign keep their leases:
// a real Redis that can be killed and frozen, and a small disk that can be
// filled.
package stores
