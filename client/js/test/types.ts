// What a program in TypeScript writes; tsc checks it against the package's types.
import axios from 'axios';
import got from 'got';
import { chromium } from 'playwright-core';
import { Agent, fetch } from 'undici';
import { HttpCrawler, ProxyConfiguration } from '@crawlee/http';
import { CHROMIUM_ARGS, Client, NoProxy, judge, type Lease, type Verdict } from 'proxylease';
import { LeasedSessions } from 'proxylease/crawlee';

const client = new Client({ url: process.env.DISCOVERY_URL, token: 'token', bans: { 'shop.example': { statuses: [403], texts: [/robot/] } } });

export async function all(): Promise<Verdict> {
    await using lease: Lease = await client.acquire({ target: 'shop.example', selector: { geo: 'eu' }, schemes: ['http'], onLost: (lost, error) => console.log(lost.id, error.message) });
    const dispatcher = lease.closing(new Agent(lease.undici({ connect: { ca: 'PEM' }, headersTimeout: 1000 })));
    const response = await fetch('https://shop.example/', { dispatcher });
    await axios.get('https://shop.example/', lease.axios());
    const answer = await client.attempts({ target: 'https://shop.example/', attempts: 2 }, (each) => axios.get<string>('https://shop.example/', each.axios()));
    console.log(answer.data.length);
    await got('https://shop.example/', lease.got());
    const browser = await chromium.launch({ proxy: lease.playwright(), args: CHROMIUM_ARGS });
    const page = await (await browser.newContext({ proxy: lease.playwright() })).newPage();
    await page.goto('https://shop.example/').catch((error: unknown) => lease.diagnose(error, { url: 'https://shop.example/' }));
    const verdict = await lease.record(response, { url: 'https://shop.example/' });
    // @ts-expect-error There is no such result.
    await lease.report('blocked');
    return verdict.changeProxy ? verdict : judge(response);
}

export async function crawl(): Promise<void> {
    await using sessions = new LeasedSessions(client, { selector: { geo: 'eu' }, proxies: 3, patienceSeconds: 120 });
    const crawler = new HttpCrawler(sessions.options({
        proxyConfiguration: new ProxyConfiguration({ newUrlFunction: sessions.newUrlFunction }),
        requestHandler: async ({ body }: { body: string | Buffer }) => console.log(body.length),
    }));
    try {
        await crawler.run(['https://shop.example/']);
    } catch (error) {
        if (error instanceof NoProxy) console.log(error.counts.inCooldown, error.retryAfterSeconds);
        throw error;
    }
}
