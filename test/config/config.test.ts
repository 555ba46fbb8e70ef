import { join, resolve } from 'node:path'
import t from 'tap'
import { readConfig, SETTINGS, type SettingName } from '../../src/config/config.ts'
import { dashboardMode } from '../../src/config/dashboard-mode.ts'
import { ROLES, type Role } from '../../src/config/needed-backends.ts'

t.test('nothing has to be set', async (t) => {
  const { config, explained } = readConfig({})
  t.match(config, { ROLE: 'all', HOST: '127.0.0.1', PORT: 8080, PUBLIC_URL: null, STORE_URL: 'sqlite:./data/tollgate.db', BRAND: 'SVC', SHUTDOWN_MS: 25_000, TRUST_PROXY: [] })
  t.same(config.WEBHOOK_DELAYS_MS, [0, 30_000, 120_000, 600_000, 3_600_000], 'the delays of the specification, section 6.4')
  t.equal(config.WEBHOOK_TIMEOUT_MS, 30_000)
  t.same(explained.map(({ name }) => name), Object.keys(SETTINGS))
  t.ok(explained.every(({ source }) => source === 'default'))
})

t.test('the embedded store, files and sealing key are in DATA_DIR', async (t) => {
  const { config } = readConfig({ DATA_DIR: '/var/lib/tollgate' })
  t.match(config, { DATA_DIR: '/var/lib/tollgate', STORE_URL: 'sqlite:/var/lib/tollgate/tollgate.db', FILES_URL: 'disk:/var/lib/tollgate/files', SEALING_KEY_FILE: '/var/lib/tollgate/sealing.key' })
})

t.test('an empty variable counts as not given, and paths are resolved', async (t) => {
  const { config } = readConfig({ PORT: '', UPSTREAMS: 'upstreams.yaml' })
  t.match(config, { PORT: 8080, UPSTREAMS: resolve('upstreams.yaml') })
})

const OIDC = { DASHBOARD: 'oidc', OIDC_ISSUER: 'https://id.example/realms/a', OIDC_CLIENT_ID: 'dashboard' }

t.test('the dashboard is local where only this machine can reach it, and off elsewhere until it is configured', async (t) => {
  const mode = (env: Record<string, string>, role?: Role) => dashboardMode(readConfig(env, role).config)
  t.equal(mode({}), 'local')
  t.equal(mode({ PUBLIC_URL: 'http://localhost:8080' }), 'local')
  t.equal(mode({ PUBLIC_URL: 'https://example.com' }), 'off')
  t.equal(mode({ HOST: '0.0.0.0', PUBLIC_URL: 'http://127.0.0.1' }), 'off')
  t.equal(mode(SHARED, 'gateway'), 'off')
  t.equal(mode({ ...SHARED, ...OIDC }, 'gateway'), 'oidc')
  t.equal(mode({ ...SHARED, ...OIDC }, 'worker'), 'off')
  t.throws(() => readConfig({ ...SHARED, ...OIDC, DASHBOARD_KEY_MANAGEMENT: 'true' }, 'gateway'), { message: /^RESOURCES_URL was "files:.*kubernetes:/ })
  t.doesNotThrow(() => readConfig({ ...SHARED, ...OIDC, DASHBOARD_KEY_MANAGEMENT: 'true', RESOURCES_URL: 'kubernetes:' }, 'gateway'))
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
    [{ STORE_URL: 'mongodb:db' }, 'STORE_URL'],
    [{ STORE_URL: 'mongodb://' }, 'STORE_URL'],
    [{ STORE_URL: 'postgres://db' }, 'STORE_URL'],
    [{ STORE_URL: 'sqlite:' }, 'STORE_URL'],
    [{ BROKER_URL: 'kafka:9092' }, 'BROKER_URL'],
    [{ RESOURCES_URL: 'kubernetes:prod' }, 'RESOURCES_URL'],
    [{ FILES_URL: 's3:bucket' }, 'FILES_URL'],
    [{ BRAND: 'my brand' }, 'BRAND'],
    [{ LOG_LEVEL: 'loud' }, 'LOG_LEVEL'],
    [{ METRICS_TENANT: 'yes' }, 'METRICS_TENANT'],
    [{ WORKER_SLOTS: '0' }, 'WORKER_SLOTS'],
    [{ WEBHOOK_DELAYS_SECONDS: '0,soon' }, 'WEBHOOK_DELAYS_SECONDS'],
    [{ RESULT_DAYS: '0' }, 'RESULT_DAYS'],
    [{ SHUTDOWN_SECONDS: '1e3' }, 'SHUTDOWN_SECONDS'],
    [{ DASHBOARD: 'on' }, 'DASHBOARD'],
    [{ DASHBOARD: 'local', HOST: '0.0.0.0', PUBLIC_URL: 'http://127.0.0.1' }, 'DASHBOARD'],
    [{ DASHBOARD: 'local', PUBLIC_URL: 'https://example.com' }, 'DASHBOARD'],
    [{ DASHBOARD: 'oidc' }, 'OIDC_ISSUER'],
    [{ DASHBOARD: 'oidc', OIDC_ISSUER: 'https://id.example' }, 'OIDC_CLIENT_ID'],
    [{ ...OIDC, OIDC_ISSUER: 'http://id.example' }, 'OIDC_ISSUER'],
    [{ ...OIDC, OIDC_ISSUER: 'https://id.example?tenant=1' }, 'OIDC_ISSUER'],
    [{ ...OIDC, OIDC_SCOPES: 'profile' }, 'OIDC_SCOPES'],
    [{ ...OIDC, PUBLIC_URL: 'http://example.com' }, 'PUBLIC_URL'],
    [{ ...OIDC, HOST: '10.0.0.1' }, 'PUBLIC_URL'],
    [{ ROLE: 'king' }, 'ROLE'],
  ]
  for (const [env, setting] of rows) {
    t.throws(() => readConfig(env), { name: 'ConfigError', message: new RegExp(`^${setting} was ".*"; it must be .+\\.$`) }, JSON.stringify(env))
  }
})

/** What a role has to be given where processes share a store. */
const SHARED = {
  STORE_URL: 'mongodb://db', BROKER_URL: 'kafka://a:9092,b:9092', FILES_URL: 'gridfs:', SEALING_KEY_FILE: '/etc/sealing.key', UPSTREAMS: '/etc/upstreams.yaml', ENGINES: '/etc/engines.yaml',
  PUBLIC_URL: 'https://api.example.com',
}

t.test('settings that make no sense together stop the start with one sentence, in the roles that it concerns', async (t) => {
  const rows: [Role[], Record<string, string>, string][] = [
    [['gateway', 'worker', 'dispatcher', 'controller'], { STORE_URL: '' }, 'STORE_URL'],
    [['gateway', 'worker', 'dispatcher'], { BROKER_URL: '' }, 'BROKER_URL'],
    [['gateway', 'worker'], { FILES_URL: '' }, 'FILES_URL'],
    [['gateway', 'worker', 'dispatcher', 'controller', 'all'], { SEALING_KEY_FILE: '' }, 'SEALING_KEY_FILE'],
    [['gateway', 'worker', 'dispatcher', 'controller', 'all'], { DERIVED_KEYS_FILE: '/etc/derived.keys' }, 'DERIVED_KEYS_FILE'],
    [['dispatcher', 'controller', 'all'], { SEALING_KEY_FILE: '', DERIVED_KEYS_FILE: '/etc/derived.keys' }, 'DERIVED_KEYS_FILE'],
    [['gateway', 'all'], { UPSTREAMS: '' }, 'UPSTREAMS'],
    [['gateway', 'worker', 'controller', 'all'], { ENGINES: '' }, 'ENGINES'],
    [['all'], { STORE_URL: 'sqlite:/tmp/x.db' }, 'FILES_URL'],
    [['gateway', 'worker', 'all'], { HOST: '0.0.0.0', PUBLIC_URL: '' }, 'PUBLIC_URL'],
    [['worker'], { PUBLIC_URL: '' }, 'PUBLIC_URL'],
  ]
  for (const [roles, change, setting] of rows) {
    for (const role of ROLES) {
      const read = () => readConfig({ ...SHARED, ...change }, role)
      if (roles.includes(role)) t.throws(read, { name: 'ConfigError', message: new RegExp(`^${setting} was ".*"; it must be .+\\.$`) }, `${role} ${JSON.stringify(change)}`)
      else if (change['STORE_URL'] === undefined) t.doesNotThrow(read, `${role} ${JSON.stringify(change)}`)
    }
  }
  for (const role of ROLES) t.equal(readConfig(SHARED, role).config.ROLE, role)
})

t.test('a command that reads the store or the settings requires no other setting', async (t) => {
  t.equal(readConfig({ STORE_URL: 'mongodb://db' }, undefined, 'inspect').config.STORE_URL, 'mongodb://db')
})

t.test('a variable whose name nearly is that of a setting is reported, and no other', async (t) => {
  const told = (name: string) => readConfig({ [name]: 'x' }, undefined, 'inspect').config.warnings
  for (const [name, meant] of [['STORE_URI', 'STORE_URL'], ['STROE_URL', 'STORE_URL'], ['BROKERURL', 'BROKER_URL'], ['WEBHOOK_DELAY_SECOND', 'WEBHOOK_DELAYS_SECONDS'], ['STORE_URL_FIL', 'STORE_URL_FILE']] as const) {
    t.same(told(name), [`${name} is not a setting and has no effect. Did you mean ${meant}?`])
  }
  for (const name of ['PATH', 'POST', 'HOSTS', 'APP_PORT', 'HOSTNAME', 'KUBERNETES_PORT', 'AWS_ACCESS_KEY_ID', 'NODE_ENV', 'TOLLGATE_SERVICE_PORT']) t.same(told(name), [], name)
})

t.test('a secret in an address is in no sentence and in no list', async (t) => {
  t.throws(() => readConfig({ STORE_URL: 'mongo://user:hunter2@db' }), { message: /mongo:\/\/user:\*\*\*@db/ })
  t.throws(() => readConfig({ BROKER_URL: 'kafka//a?username=me&password=hunter2&tls=on' }), { message: /password=\*\*\*&tls=on/ })
  const { explained } = readConfig({ STORE_URL: 'sqlite:///x:hunter2@y' })
  t.notMatch(JSON.stringify(explained), /hunter2/)
  t.notMatch(JSON.stringify(readConfig({ OIDC_CLIENT_SECRET: 'hunter2' }).explained), /hunter2/)
  t.throws(() => readConfig({ OIDC_CLIENT_SECRET: 'hunter2\n' }), { message: /^OIDC_CLIENT_SECRET was "\*\*\*"/ })
})

t.test('an address may come from a file, and not from both', async (t) => {
  const folder = t.testdir({ store: 'sqlite:/tmp/x.db\n' })
  const { config, explained } = readConfig({ STORE_URL_FILE: join(folder, 'store') })
  t.equal(config.STORE_URL, 'sqlite:/tmp/x.db')
  t.equal(explained.find(({ name }) => name === 'STORE_URL')?.source, 'file')
  t.throws(() => readConfig({ STORE_URL_FILE: join(folder, 'store'), STORE_URL: 'sqlite:x' }), { message: /^STORE_URL_FILE/ })
  t.equal(readConfig({ STORE_URL_FILE: join(folder, 'store'), STORE_URL: '' }).config.STORE_URL, config.STORE_URL, 'what is empty was not given')
  t.equal(readConfig({ STORE_URL_FILE: '', STORE_URL: 'sqlite:x' }).config.STORE_URL, 'sqlite:x')
  t.throws(() => readConfig({ STORE_URL_FILE: join(folder, 'missing') }), { message: /^STORE_URL_FILE was ".*missing"; it must be a file that can be read/ })
})
