// Package crawl is the crawlers of a fault campaign: many at once, each of
// another temper, that lease proxies, crawl through them, and write down all that
// they were told. They speak HTTP by themselves and share no code with the
// clients or with discovery, so that a mistake of those does not hide here.
package crawl
