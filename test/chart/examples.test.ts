/** What examples/kubernetes promises: its objects, its values and its commands name the same things. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { rootCertificates } from 'node:tls'
import t from 'tap'
import { parse } from 'yaml'
import { readAddress } from '../../src/backends/broker/kafka/kafka-url.ts'
import { installed, missing } from '../servers/client.ts'
import { command } from '../servers/command.ts'
import type { Answered } from '../servers/kube/api.ts'
import { CHART, found, helm, nameOf, parsed, pods } from './chart.ts'

const FOLDER = join(import.meta.dirname, '../../examples/kubernetes')
const written = (file: string) => readFileSync(join(FOLDER, file), 'utf8')

t.test('the address of Kafka leads to the cluster, as the user, with the topics that the user may use', async (t) => {
  const all = parsed(written('kafka.yaml'))
  const [url = ''] = /kafka:\/\/[^']+/.exec(written('README.md')) ?? []
  const address = readAddress(url, (file) => (file === '/etc/tollgate/broker/ca.crt' ? rootCertificates[0]! : file))
  const { listeners } = found(all, 'Kafka/rings').spec.kafka
  t.same(address.brokers, [`rings-kafka-bootstrap.tollgate.svc:${listeners[0].port}`])
  t.match(address.sasl, { mechanism: listeners[0].authentication.type, username: 'tollgate-rings', password: '/etc/tollgate/broker/password' })
  const { acls } = found(all, 'KafkaUser/tollgate-rings').spec.authorization
  t.same(acls.map(({ resource }: Answered) => resource.name), [address.topicPrefix, `${address.group}.`])
  t.same(acls.map(({ operations }: Answered) => operations), [['Create', 'Describe', 'DescribeConfigs', 'Read', 'Write'], ['Read']], 'every topic that is missing is created')
})

t.test('the commands wait for objects that they have created', async (t) => {
  const created = ['mongodb.yaml', 'kafka.yaml'].flatMap((file) => parsed(written(file)).map((object) => nameOf(object).toLowerCase()))
  const awaited = [...written('README.md').matchAll(/ wait .*--for=\S+ (.*)/g)].flatMap(([, objects = '']) => objects.split(' '))
  t.same(awaited.filter((one) => !created.includes(one)), [])
  t.not(awaited.length, 0)
})

if (!missing(t, ['glua'])) {
  t.test('Argo CD sees the health of Plans and ApiKeys', async (t) => {
    const { data } = parse(written('argo-cd.yaml'))
    const [script = '', ...others] = Object.values<string>(data)
    t.same(Object.keys(data), ['Plan', 'ApiKey'].map((kind) => `resource.customizations.health.tollgate.dev_${kind}`))
    t.same(others, [script])
    const ready = (status: string, reason: string) => ({ type: 'Ready', status, reason, message: 'Why.' })
    const paused = { type: 'Paused', status: 'True', reason: 'Paused', message: 'Why.' }
    const observed = (...conditions: object[]) => ({ observedGeneration: 2, conditions: [{ type: 'PlanActive', status: 'True' }, ...conditions] })
    const rows: [health: string, status?: object][] = [
      ['Progressing'],
      ['Progressing', { observedGeneration: -1 }],
      ['Progressing', { ...observed(ready('True', 'Issued')), observedGeneration: 1 }],
      ['Progressing', observed(ready('Unknown', 'StoreUnavailable'))],
      ['Progressing', observed(ready('False', 'StoreUnavailable'))],
      ['Healthy', observed(ready('True', 'Issued'))],
      ['Suspended', observed(ready('False', 'KeySuspended'))],
      ['Suspended', observed(ready('False', 'PlanRetired'))],
      ['Suspended', { ...observed(ready('True', 'Issued'), paused), observedGeneration: 1 }],
      ['Degraded', observed(ready('False', 'SecretConflict'))],
      ['Degraded', observed(ready('False', 'PlanNotAllowed'))],
    ]
    for (const [health, status] of rows) {
      const folder = t.testdir({ 'health.lua': `local obj = ${lua({ metadata: { generation: 2 }, status })}\nlocal function health()\n${script}end\nlocal found = health()\nprint(found.status, found.message ~= nil)` })
      t.equal(await command(installed('glua'), [join(folder, 'health.lua')]), `${health}\ttrue\n`, JSON.stringify(status))
    }
  })
}

if (!missing(t, ['helm'])) {
  t.test('the chart takes the values, and mounts what the MongoDB operator writes', async (t) => {
    const all = parsed(await helm(['template', 'tollgate', CHART, '--namespace', 'tollgate', '--values', join(FOLDER, 'values.yaml')]))
    const [{ connectionStringSecretName }] = found(parsed(written('mongodb.yaml')), 'MongoDBCommunity/records').spec.users
    for (const [pod, { spec }] of pods(all).filter(([pod]) => pod.startsWith('Deployment'))) {
      t.match(spec.volumes.find(({ name }: Answered) => name === 'store').secret, { secretName: connectionStringSecretName }, pod)
      const address = spec.containers[0].env.find(({ name }: Answered) => name === 'STORE_URL_FILE')
      t.equal(address.value, '/etc/tollgate/store/connectionString.standard', pod)
    }
  })
}

/** A JSON value as an expression of Lua. */
function lua(value: unknown): string {
  if (Array.isArray(value)) return `{ ${value.map(lua).join(', ')} }`
  if (typeof value !== 'object' || value === null) return value === undefined ? 'nil' : JSON.stringify(value)
  return `{ ${Object.entries(value).map(([name, member]) => `${name} = ${lua(member)}`).join(', ')} }`
}
