// Crawls the URLs of the command line through leased proxies and prints one line of JSON for each page.
//
//   npm install && DISCOVERY_URL=http://127.0.0.1:8090 DISCOVERY_TOKEN=... node crawl.mjs https://shop.example/
import { Configuration, HttpCrawler, ProxyConfiguration } from '@crawlee/http';
import { Client } from 'proxylease';
import { LeasedSessions } from 'proxylease/crawlee';

const client = new Client({ url: process.env.DISCOVERY_URL, token: process.env.DISCOVERY_TOKEN });
client.closeOnSignals();
const sessions = new LeasedSessions(client, { proxies: 1, patienceSeconds: 20 });
const crawler = new HttpCrawler(
    sessions.options({
        proxyConfiguration: new ProxyConfiguration({ newUrlFunction: sessions.newUrlFunction }),
        maxConcurrency: 1,
        ignoreSslErrors: false,
        additionalMimeTypes: ['text/plain'],
        requestHandler: ({ request, body, session }) => {
            console.log(JSON.stringify({ url: request.url, text: body.toString(), session: session.id }));
        },
        failedRequestHandler: ({ request }, error) => console.log(JSON.stringify({ url: request.url, error: error.message })),
    }),
    new Configuration({ persistStorage: false }),
);
try {
    await crawler.run(process.argv.slice(2));
} finally {
    await client.close();
}
