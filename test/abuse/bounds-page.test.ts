/** The numbers of docs/bounds.md are those of the code: each row, and the line that enforces it. Whoever changes one finds the other here. */
import { readFileSync } from 'node:fs'
import { maxHeaderSize } from 'node:http'
import { join } from 'node:path'
import t from 'tap'

const ROOT = join(import.meta.dirname, '../..')
const read = (file: string) => readFileSync(join(ROOT, file), 'utf8').replaceAll(/\s+/g, ' ')
const page = read('docs/bounds.md')

/** What the page says, the file, and what the file says. */
const BOUNDS: [page: string, file: string, code: string][] = [
  ['the time for them | 16 KiB, 20 s', 'src/app.ts', 'headersTimeout: 20_000'],
  ['the time for them | 16 KiB, 20 s', 'src/app.ts', 'connectionsCheckingInterval: 1_000'],
  ['a whole request | 120 s', 'src/app.ts', 'requestTimeout: BODY_MS'],
  ['a whole request | 120 s', 'src/tasks/flat-charge.ts', 'BODY_MS = 120_000'],
  ['in each 10 s | 10 KiB', 'src/http/minimum-body-rate.ts', '{ windowMs: 10_000, bytes: 10 * 1024 }'],
  ['a body of `/v1` | 32 MiB', 'plugins/openai/openai.ts', 'BODY_LIMIT = 32 * 1024 * 1024'],
  ['of `/mcp` | 1 MiB', 'plugins/mcp/mcp.ts', 'BODY_LIMIT = 1024 * 1024'],
  ['a body of `/api/v1`, of `/mcp` | 1 MiB', 'plugins/request-body/request-body.ts', 'most: bodyLimit ?? MIB'],
  ['`maxBodyBytes`: 10 MiB, at most 1 GiB', 'plugins/proxy/routes-file.ts', 'maximum: 1024 ** 3, default: 10 * 1024 ** 2'],
  ['| 100,000 and 200 levels', 'src/json/json-faults.ts', 'MAX_VALUES = 100_000'],
  ['| 100,000 and 200 levels', 'src/json/json-faults.ts', 'MAX_DEPTH = 200'],
  ['after an early answer | 128 MiB, 30 s', 'plugins/errors/errors.ts', '{ bytes: 128 * 1024 * 1024, ms: 30_000 }'],
  ['a quarter of the memory, at most 256 MiB', 'src/config/setting-types.ts', 'Math.min(256, Math.min(process.constrainedMemory() || Infinity, totalmem()) / 4'],
  ['64 bytes a value', 'plugins/request-body/request-body.ts', 'VALUE_BYTES = 64'],
  ['4 KiB a request', 'plugins/request-body/body-budget.ts', 'REQUEST_BYTES = 4 * 1024'],
  ['an ended answer of which nothing is read | 5 min', 'src/http/stalled-clients.ts', 'STALLED_CLIENT_MS = 300_000'],
  ['| 50; 8 MiB each, 20 s, 3 redirects', 'plugins/openai/image-urls.ts', 'MAX_ADDRESSES = 50'],
  ['| 50; 8 MiB each, 20 s, 3 redirects', 'plugins/openai/image-urls.ts', 'MAX_FETCHED_BYTES = 8 * 1024 * 1024'],
  ['| 50; 8 MiB each, 20 s, 3 redirects', 'plugins/openai/image-urls.ts', 'FETCH_MS = 20_000'],
  ['| 50; 8 MiB each, 20 s, 3 redirects', 'plugins/openai/image-urls.ts', 'redirects: 3,'],
  ['| 64 KiB and 64 KiB more of each', 'src/tasks/probe-sources.ts', 'PROBE_BYTES = 64 * 1024'],
  ['1.5 s for all sources of a task', 'src/tasks/probe-sources.ts', 'PROBE_MS = 1500'],
  ['| 4 to a host, 32 for a tenant, 128 in all', 'src/tasks/probe-sources.ts', 'PROBES_MAX = { all: 128, tenant: 32, host: 4 }'],
  ['a page of a list of tasks or events | 1 MiB', 'src/tasks/read-page.ts', 'PAGE_BYTES = 1024 * 1024'],
  ['answers of 64 KiB or more to reads', 'plugins/request-body/request-body.ts', 'LARGE_ANSWER_BYTES = 64 * 1024'],
  ['MCP counts media three times', 'plugins/mcp/media-content.ts', 'COPIES = 3'],
  ['an answer to a webhook | 20 kB read', 'plugins/dispatcher/delivery-attempt.ts', 'ANSWER_BYTES = 20_000'],
  ['an upload | 100 MiB', 'src/tasks/receive-upload.ts', 'bytes: 100 * MIB'],
  ['uploads that arrive at once, of a tenant | 4.', 'src/tasks/receive-upload.ts', 'arriving: 4'],
  ['until the address expires after 15 min', 'src/tasks/receive-upload.ts', 'LINK_MS = 15 * 60_000'],
  ['stored uploads of a tenant | 1,000, or 2 GiB', 'src/tasks/receive-upload.ts', 'count: 1_000, bytes: 2048 * MIB'],
  ['reads none again | 10,000', 'src/tasks/source-info.ts', 'KNOWN_MAX = 10_000'],
  ['| 500, 250 | 429, `downloads`', 'plugins/files/files.ts', 'stalledMs: 300_000, perFile: 500, perAddress: 250'],
  ['of which nothing is read | 5 min', 'plugins/files/files.ts', 'stalledMs: 300_000'],
  ['a message | 16 MiB', 'plugins/proxy/websocket.ts', 'MAX_MESSAGE_BYTES = 16 * 1024 * 1024'],
  ['on each side | 1 MiB', 'plugins/proxy/websocket.ts', 'BUFFERED_BYTES = 1024 * 1024'],
  ['reads a minute, of a key | 6,000', 'plugins/auth/auth.ts', 'READS_PER_MINUTE = 6_000'],
  ['for one plan | 16. Each counts at most 32 pieces of 512 characters', 'src/upstream/usage/prompt-tokens.ts', 'MAX_COUNTS = 16'],
  ['for one plan | 16. Each counts at most 32 pieces of 512 characters', 'src/upstream/usage/tokenizer.ts', 'MAX_STRETCHES = 32'],
  ['for one plan | 16. Each counts at most 32 pieces of 512 characters', 'src/upstream/usage/tokenizer.ts', 'STRETCH = 512'],
  ['of a caller | 20, 50', 'plugins/media/event-stream.ts', 'STREAMS_PER_CALLER = 20'],
  ['of a caller | 20, 50', 'plugins/task-watch/task-watch.ts', 'WAITS_PER_CALLER = 50'],
  ['100 with a provider', 'src/backends/engines/engines-file.ts', 'PROVIDERS.includes(engineType) ? 100 : 0'],
  ['concurrent deliveries of a dispatcher | 1,000.', 'plugins/dispatcher/dispatcher.ts', 'SLOTS = 1_000'],
  ['half of the free slots; a tenant with 4 or more in progress may hold up to an eighth of the free slots', 'plugins/dispatcher/concurrency-limits.ts', 'limit: Math.ceil(free / 2), perTenant: Math.min(TENANT_MAX, Math.max(MIN_CONCURRENCY, Math.floor(free / 8)))'],
  ['| 128, 100, 4 to 64 as fast as it answers', 'plugins/dispatcher/dispatcher.ts', 'PER_HOST = 128'],
  ['| 128, 100, 4 to 64 as fast as it answers', 'plugins/dispatcher/concurrency-limits.ts', 'TENANT_MAX = 100'],
  ['| 128, 100, 4 to 64 as fast as it answers', 'plugins/dispatcher/concurrency-limits.ts', 'MIN_CONCURRENCY = 4'],
  ['| 128, 100, 4 to 64 as fast as it answers', 'plugins/dispatcher/concurrency-limits.ts', 'MAX_CONCURRENCY = 64'],
  ['redeliveries of a webhook | 10; after one that failed a pause of 30 s, 2 min, 10 min, then 1 h', 'src/domain/webhook-redelivery.ts', 'REDELIVERIES_MAX = 10'],
  ['redeliveries of a webhook | 10; after one that failed a pause of 30 s, 2 min, 10 min, then 1 h', 'src/domain/webhook-redelivery.ts', '[30_000, 120_000, 600_000, 3_600_000]'],
  ['one replay | 500 deliveries of 31 days', 'src/domain/webhook-redelivery.ts', 'REPLAY_MAX = 500'],
  ['one replay | 500 deliveries of 31 days', 'src/domain/webhook-redelivery.ts', 'REPLAY_RANGE_MS = 31 * 24 * 3_600_000'],
]

for (const [said, file, code] of BOUNDS) {
  t.test(`${file}: ${code}`, (t) => {
    t.ok(page.includes(said), `docs/bounds.md says "${said}"`)
    t.ok(read(file).includes(code), `the code says "${code}"`)
    t.end()
  })
}

t.test('the headers of a request have 16 KiB, which is the default of Node', (t) => {
  t.equal(maxHeaderSize, 16 * 1024)
  t.end()
})
