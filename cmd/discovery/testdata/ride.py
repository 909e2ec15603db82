"""Crawlers that lease, report and release until standard input ends, and tell what went wrong."""

import json
import os
import sys
import threading

import proxylease

client = proxylease.Client(os.environ["DISCOVERY_URL"], os.environ["DISCOVERY_TOKEN"])
ended, lock = threading.Event(), threading.Lock()
errors, leases = [], 0


def lost(_, error):
    errors.append(f"lost: {error}")


def crawl(hold):
    global leases
    try:
        while not ended.is_set():
            with client.lease(target="shop.example", ttl=15, on_lost=lost) as lease:
                with lock:
                    leases += 1
                    if leases == 20:
                        print("busy", flush=True)
                if hold:
                    ended.wait()
                lease.report("ok")
                if lease.error is not None:
                    errors.append(f"ended: {lease.error}")
    except Exception as error:  # pylint: disable=broad-except  # that there is none is the test
        errors.append(repr(error))


threads = [threading.Thread(target=crawl, args=(n % 2 == 0,)) for n in range(4)]
for t in threads:
    t.start()
sys.stdin.read()
ended.set()
for t in threads:
    t.join()
print(json.dumps({"leases": leases, "errors": errors}))
