/** compose.yaml against the Compose specification's schema, the Dockerfile and the settings. It is not started, since that needs Docker. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv } from 'ajv'
import t from 'tap'
import { parse } from 'yaml'
import { readDockerfile } from '../image/dockerfile.ts'
import { readConfig, SETTINGS } from '../src/config/config.ts'
import { ROLES } from '../src/config/needed-backends.ts'
import { need } from './servers/client.ts'

const ROOT = join(import.meta.dirname, '..')
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')

type Service = {
  command?: string[]
  environment?: Record<string, string>
  healthcheck?: { test: string[] }
  volumes?: string[]
  configs?: string[]
  secrets?: string[]
  networks?: string[]
  read_only?: boolean
  build?: string
}
const compose = parse(read('compose.yaml'), { merge: true })
const services = new Map<string, Service>(Object.entries(compose.services))
const ours = [...services].filter(([, { build }]) => build !== undefined)
const recipe = readDockerfile(read('Dockerfile'))

t.test('compose.yaml conforms to the schema of the Compose specification', async (t) => {
  const path = need(t, 'compose-schema')
  if (path === null) return
  // It names its parts as older drafts did, which refers to nothing.
  const { $schema: _draft, ...schema } = JSON.parse(readFileSync(path, 'utf8'), (name, value) => (name === 'id' && typeof value === 'string' ? undefined : value))
  const validate = new Ajv({ strict: false, validateFormats: false, allErrors: true }).compile(schema)
  t.ok(validate(compose), JSON.stringify(validate.errors))
})

t.test('every role is a service of the image once, with valid settings', async (t) => {
  t.same(ours.map(([, { command }]) => command?.join(' ')).sort(), ROLES.filter((role) => role !== 'all').sort())
  for (const [name, { command, environment = {}, build }] of ours) {
    t.equal(build, '.')
    t.same(Object.keys(environment).filter((setting) => !(setting in SETTINGS)), [], `${name} sets settings only`)
    t.doesNotThrow(() => readConfig({ ...recipe.env, ...environment }, command?.[0]), name)
  }
})

t.test('health checks use the operations port, and containers write only to /tmp and their data', async (t) => {
  const { config } = readConfig({ ...recipe.env, PUBLIC_URL: 'http://127.0.0.1' })
  for (const [name, service] of ours) {
    t.match(service.healthcheck?.test.join(' '), `http://127.0.0.1:${config.OPS_PORT}/readyz`, name)
    t.equal(service.read_only, true, name)
  }
  t.ok(services.get('controller')?.volumes?.some((volume) => volume.endsWith(`:${config.DATA_DIR}`)), 'the controller keeps what it writes')
})

t.test('everything that a service names is declared, and every file exists except the sealing key, which the operator creates', async (t) => {
  for (const [name, { configs = [], secrets = [], networks = [], volumes = [] }] of services) {
    for (const config of configs) t.ok(existsSync(join(ROOT, compose.configs[config].file)), `${name}: ${config}`)
    for (const secret of secrets) t.ok(compose.secrets[secret], `${name}: ${secret}`)
    for (const network of networks) t.ok(network in compose.networks, `${name}: ${network}`)
    for (const [from = ''] of volumes.map((volume) => volume.split(':'))) t.ok(from.startsWith('./') ? existsSync(join(ROOT, from)) : from in compose.volumes, `${name}: ${from}`)
  }
  t.match(read('.gitignore'), /^\/?data\/?$/m, 'the sealing key is not committed by accident')
})
