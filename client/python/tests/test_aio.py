"""Tests of proxylease.aio on a scripted discovery."""

import asyncio
import contextlib
import gc
import time
import unittest
from unittest import mock

import proxylease
from proxylease import _keeper, aio

from . import harness, test_client
from .harness import Discovery


class Aio(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.d = Discovery({"p%d" % n: 1 for n in range(20)})
        self.addCleanup(self.d.__exit__)
        often = mock.patch.object(_keeper, "RENEWALS_PER_TTL", 300)
        often.start()
        self.addCleanup(often.stop)

    async def until(self, condition):
        for _ in range(2000):
            if condition():
                return
            await asyncio.sleep(0.01)
        self.fail("condition not met in time")

    async def test_a_lease_is_a_scope(self):
        async with aio.Client(self.d.url) as client:
            async with client.lease(target="shop.example") as lease:
                self.assertEqual(1, len(self.d.leases))
                await lease.report(proxylease.judge(403), target="https://other.example/")
            self.assertEqual({}, self.d.leases)
            self.assertIsInstance(lease.error, proxylease.Released)
            with self.assertRaises(ZeroDivisionError):
                async with client.lease():
                    raise ZeroDivisionError
            self.assertEqual({}, self.d.leases)
            await client.lease()
        self.assertEqual({}, self.d.leases)
        self.assertEqual([("p0", "banned", "other.example", None)], self.d.reports)
        with self.assertRaises(proxylease.ClientClosed):
            await client.lease()

    async def test_twenty_leases_have_one_task(self):
        async with aio.Client(self.d.url) as client:
            leases = [await client.lease(ttl=60) for _ in range(20)]
            await self.until(lambda: len({r["path"] for r in self.d.calls("POST", "/renew")}) == 20)
            await self.until(lambda: not client._keeper._calls)
            self.assertLessEqual(len(asyncio.all_tasks()), 3, "the test, the renewals and their timer")
            self.assertEqual([None] * 20, [lease.error for lease in leases])

    async def test_a_cancelled_request_for_a_lease_leaves_none(self):
        self.d.proxies = {"p0": 1}
        client = aio.Client(self.d.url)
        async with client.lease():
            waiting = asyncio.ensure_future(client.lease(patience=30)._acquire())
            await self.until(lambda: len(self.d.calls("POST", "/v1/leases")) == 2)
            waiting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting
        await self.until(lambda: not client._keeper._calls)
        await self.until(lambda: not self.d.leases)

    async def test_the_end_of_the_loop_during_a_request_leaves_no_lease(self):
        """In a loop of its own, as asyncio.run has it: the answer is still to come when the loop ends."""
        first = []

        def before(method, path, body):
            if path == "/v1/leases" and not first:
                first.append(self.d.grant("p0", body, self.d.requests[-1]["key"]))
                for _ in range(2000):
                    if len(self.d.requests) > 1:
                        break
                    time.sleep(0.01)
                raise Discovery.Hangup

        self.d.before = before

        def run():
            async def main():
                asyncio.ensure_future(aio.Client(self.d.url).lease()._acquire())
                while not first:
                    await asyncio.sleep(0.01)

            asyncio.run(main())

        with self.assertNoLogs("asyncio", "ERROR") if hasattr(self, "assertNoLogs") else contextlib.nullcontext():
            await asyncio.get_running_loop().run_in_executor(None, run)
            gc.collect()
        self.assertEqual((1, {}), (self.d.count, self.d.leases))

    async def test_closing_the_client_ends_a_request_for_a_lease(self):
        self.d.proxies = {"p0": 1}
        async with aio.Client(self.d.url) as client:
            await client.lease()
            waiting = asyncio.ensure_future(client.lease(patience=30)._acquire())
            await self.until(lambda: len(self.d.calls("POST", "/v1/leases")) == 2)
        with self.assertRaises(proxylease.ClientClosed):
            await waiting
        self.assertEqual({}, self.d.leases)

    async def test_a_cancelled_holder_gives_the_lease_back(self):
        client = aio.Client(self.d.url)

        async def hold():
            async with client.lease():
                await asyncio.sleep(60)

        task = asyncio.ensure_future(hold())
        await self.until(lambda: self.d.leases)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertEqual({}, self.d.leases)

    async def test_callbacks(self):
        seen = []

        async def lost(lease, error):
            seen.append((lease, type(error)))

        async with aio.Client(self.d.url) as client:
            async with client.lease(ttl=60, on_lost=lost, on_unusable=seen.append) as lease:
                self.d.status["p0"] = {"usable": False, "message": "probes fail"}
                await self.until(lambda: seen)
                self.assertEqual([lease], seen)
                self.d.leases.clear()
                await asyncio.wait_for(lease.wait_ended(), 20)
                await self.until(lambda: len(seen) == 2)
        self.assertEqual((lease, proxylease.Lost), seen[1])


class Attempts(test_client.Attempts):
    """The same attempts, on an event loop."""

    def run_attempts(self, d, fetch, n, want):
        async def afetch(lease):
            return fetch(lease)

        async def main():
            async with aio.Client(d.url) as client:
                return (await client.attempts(afetch, n=n, **want)).status

        try:
            return asyncio.run(main())
        except Exception as error:  # pylint: disable=broad-except
            return error


if __name__ == "__main__":
    unittest.main()
