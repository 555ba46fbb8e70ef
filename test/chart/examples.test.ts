/** What examples/kubernetes promises: its objects, its values and its commands name the same things. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { rootCertificates } from 'node:tls'
import t from 'tap'
import { readAddress } from '../../src/backends/broker/kafka/kafka-url.ts'
import { KINDS } from '../../src/domain/media-generations.ts'
import { missing } from '../servers/client.ts'
import type { Answered } from '../servers/kube/api.ts'
import { CHART, found, helm, parsed, pods } from './chart.ts'

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
  for (const kind of [...KINDS, 'webhook']) t.equal(found(all, `KafkaTopic/${address.topicPrefix}${kind}`).spec.partitions, address.partitions)
})

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
