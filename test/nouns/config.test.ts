import { join, resolve } from 'node:path'
import t from 'tap'
import { ConfigError, readConfig, SETTINGS, type SettingName } from '../../src/config.ts'

t.test('nothing has to be set', async (t) => {
  const { config, explained } = readConfig({})
  t.match(config, { ROLE: 'all', HOST: '127.0.0.1', PORT: 8080, PUBLIC_URL: null, STORE_URL: 'sqlite:./data/tollgate.db', BRAND: 'SVC', SHUTDOWN_SECONDS: 25_000, TRUST_PROXY: [] })
  t.same(config.WEBHOOK_DELAYS_SECONDS, [0, 30_000, 120_000, 600_000, 3_600_000], 'the delays of the specification, section 6.4')
  t.equal(config.WEBHOOK_TIMEOUT_SECONDS, 30_000)
  t.same(explained.map(({ name }) => name), Object.keys(SETTINGS))
  t.ok(explained.every(({ source }) => source === 'default'))
})

t.test('what is embedded follows DATA_DIR', async (t) => {
  const { config } = readConfig({ DATA_DIR: '/var/lib/tollgate' })
  t.match(config, { DATA_DIR: '/var/lib/tollgate', STORE_URL: 'sqlite:/var/lib/tollgate/tollgate.db', FILES_URL: 'disk:/var/lib/tollgate/files', SEALING_KEY_FILE: '/var/lib/tollgate/sealing.key' })
})

t.test('an empty variable counts as not given, and paths are resolved', async (t) => {
  const { config } = readConfig({ PORT: '', UPSTREAMS: 'upstreams.yaml' })
  t.match(config, { PORT: 8080, UPSTREAMS: resolve('upstreams.yaml') })
})

t.test('each value that makes no sense stops the start with one sentence: the setting, what it was, what it may be', async (t) => {
  const rows: [Record<string, string>, SettingName, string?][] = [
    [{ PORT: '80x' }, 'PORT'],
    [{ PORT: '65536' }, 'PORT'],
    [{ PORT: '-1' }, 'PORT'],
    [{ HOST: 'example.com' }, 'HOST'],
    [{ PUBLIC_URL: 'tollgate.example.com' }, 'PUBLIC_URL'],
    [{ PUBLIC_URL: 'https://example.com/path' }, 'PUBLIC_URL'],
    [{ HOST: '0.0.0.0' }, 'PUBLIC_URL'],
    [{ HOST: '::' }, 'PUBLIC_URL'],
    [{ PORT: '9090' }, 'OPS_PORT'],
    [{ TRUST_PROXY: 'everyone' }, 'TRUST_PROXY'],
    [{ TRUST_PROXY: '10.0.0.0/33' }, 'TRUST_PROXY'],
    [{ STORE_URL: 'mongodb://user:secret@db' }, 'STORE_URL'],
    [{ STORE_URL: 'sqlite:' }, 'STORE_URL'],
    [{ BROKER_URL: 'kafka://a:9092' }, 'BROKER_URL'],
    [{ RESOURCES_URL: 'kubernetes:' }, 'RESOURCES_URL'],
    [{ FILES_URL: 's3://bucket' }, 'FILES_URL'],
    [{ BRAND: 'my brand' }, 'BRAND'],
    [{ LOG_LEVEL: 'loud' }, 'LOG_LEVEL'],
    [{ METRICS_TENANT: 'yes' }, 'METRICS_TENANT'],
    [{ WORKER_SLOTS: '0' }, 'WORKER_SLOTS'],
    [{ WEBHOOK_DELAYS_SECONDS: '0,soon' }, 'WEBHOOK_DELAYS_SECONDS'],
    [{ RESULT_DAYS: '0' }, 'RESULT_DAYS'],
    [{ SHUTDOWN_SECONDS: '1e3' }, 'SHUTDOWN_SECONDS'],
    [{ ROLE: 'king' }, 'ROLE'],
    [{ ROLE: 'gateway' }, 'ROLE'],
  ]
  for (const [env, setting] of rows) {
    t.throws(() => readConfig(env), { name: 'ConfigError', message: new RegExp(`^${setting} was ".*"; it may be .+\\.$`) }, JSON.stringify(env))
  }
  t.throws(() => readConfig({}, 'worker'), ConfigError, 'a split role on sqlite')
})

t.test('a secret in an address is in no sentence and in no list', async (t) => {
  t.throws(() => readConfig({ STORE_URL: 'mongodb://user:hunter2@db' }), { message: /mongodb:\/\/user:\*\*\*@db/ })
  const { explained } = readConfig({ STORE_URL: 'sqlite:///x:hunter2@y' })
  t.notMatch(JSON.stringify(explained), /hunter2/)
})

t.test('an address may come from a file, and not from both', async (t) => {
  const folder = t.testdir({ store: 'sqlite:/tmp/x.db\n' })
  const { config, explained } = readConfig({ STORE_URL_FILE: join(folder, 'store') })
  t.equal(config.STORE_URL, 'sqlite:/tmp/x.db')
  t.equal(explained.find(({ name }) => name === 'STORE_URL')?.source, 'file')
  t.throws(() => readConfig({ STORE_URL_FILE: join(folder, 'store'), STORE_URL: 'sqlite:x' }), { message: /^STORE_URL_FILE/ })
  t.throws(() => readConfig({ STORE_URL_FILE: join(folder, 'missing') }), { message: /^STORE_URL_FILE was ".*missing"; it may be a file that can be read/ })
})
