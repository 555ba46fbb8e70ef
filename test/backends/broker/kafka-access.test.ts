/** Kafka over TLS and SASL, with access control lists. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import kafkajs, { type AclOperationTypes as Operation, type AclResourceTypes as Resource } from 'kafkajs'
import t from 'tap'
import { KAFKA_USERS, ownKafka } from '../../servers/kafka.ts'
import { folderFor } from '../../temporary-folder.ts'
import { recordingBroker, healthy, prefix, publishUntilReceived, until, withAdmin } from './recording-broker.ts'
import { handled, ready } from '../../contracts/broker.ts'

const { AclOperationTypes, AclPermissionTypes, AclResourceTypes, ResourcePatternTypes } = kafkajs

t.test('authorization over TLS with SCRAM', async (t) => {
  const server = await ownKafka(t, { tls: true, sasl: 'scram-sha-256', acl: true })
  if (!server) return
  const folder = await folderFor(t)
  const caFile = join(folder, 'ca.pem')
  const passwordFile = join(folder, 'password')
  await writeFile(caFile, server.ca)
  await writeFile(passwordFile, `${KAFKA_USERS.stranger}\n`)
  const secure = { tls: 'true', caFile, sasl: 'scram-sha-256' }
  const admin = `admin:${KAFKA_USERS.admin}@${server.brokers}`
  const asAdmin = { ssl: { ca: server.ca }, sasl: { mechanism: 'scram-sha-256', username: 'admin', password: KAFKA_USERS.admin } }

  await t.test('an authorized user publishes and consumes', async (t) => {
    const both = await recordingBroker(t, admin, { ...secure, topicPrefix: prefix() })
    both.consume('image', handled)
    await publishUntilReceived(both, both)
    t.same(both.warnings, [])
  })

  const refused: [what: string, servers: string, query: Record<string, string>, sentence: RegExp][] = [
    ['a wrong password', `admin:wrong@${server.brokers}`, secure, /refuses the user admin or the password/],
    ['an unknown user', `nobody:secret@${server.brokers}`, secure, /refuses the user nobody or the password/],
    ['a mechanism that is not offered', admin, { ...secure, sasl: 'scram-sha-512' }, /does not offer sasl=scram-sha-512/],
    ['an authority that did not sign the certificate', admin, { tls: 'true', sasl: 'scram-sha-256' }, /not trusted .*caFile/],
    ['no TLS on a TLS port', admin, { sasl: 'scram-sha-256' }, /closes the connection .*: tls and sasl/],
    ['no user where one is required', server.brokers, { tls: 'true', caFile }, /closes the connection .*: tls and sasl/],
  ]
  for (const [what, servers, query, sentence] of refused) {
    await t.test(`${what} is reported, and retried`, async (t) => {
      const broker = await recordingBroker(t, servers, { ...query, topicPrefix: prefix() })
      broker.consume('image', handled)
      broker.publish(ready('image', 'task'))
      await until(() => broker.count('restarted') > 1)
      t.match(broker.health(), { ok: false, detail: sentence })
      t.match(broker.warnings[0]?.facts.problem, sentence)
      t.notMatch(JSON.stringify([broker.warnings, broker.health()]), /admin-secret|wrong/)
    })
  }

  await t.test('a user without rights, then with rights on a missing topic, then with every right that it needs', async (t) => {
    const topicPrefix = prefix()
    const stranger = await recordingBroker(t, server.brokers, { ...secure, username: 'stranger', passwordFile, topicPrefix })
    stranger.consume('image', handled)
    stranger.publish(ready('image', 'task'))
    const reports = (sentence: RegExp) => until(() => sentence.test(stranger.health().detail))
    await reports(/may not use the topic .*image: .*Describe/)

    const allow = (resourceType: Resource, operations: Operation[]) =>
      withAdmin(
        server.brokers,
        (client) =>
          client.createAcls({
            acl: operations.map((operation) => ({
              resourceType,
              resourceName: topicPrefix,
              resourcePatternType: ResourcePatternTypes.PREFIXED,
              principal: 'User:stranger',
              host: '*',
              operation,
              permissionType: AclPermissionTypes.ALLOW,
            })),
          }),
        asAdmin,
      )
    await allow(AclResourceTypes.TOPIC, [AclOperationTypes.READ, AclOperationTypes.WRITE, AclOperationTypes.DESCRIBE])
    await reports(/image is missing and could not be created \(TOPIC_AUTHORIZATION_FAILED\): kafka-topics.sh .* --create --topic .*image --partitions 2 --config retention/)
    await withAdmin(server.brokers, (client) => client.createTopics({ topics: [{ topic: `${topicPrefix}image`, numPartitions: 2 }] }), asAdmin)
    await reports(/join the group .*workers.image: it needs/)
    await allow(AclResourceTypes.GROUP, [AclOperationTypes.READ])
    await publishUntilReceived(stranger, stranger)
    await healthy(stranger)
  })
})

t.test('a user over PLAIN', async (t) => {
  const server = await ownKafka(t, { sasl: 'plain' })
  if (!server) return
  const [right, wrong] = await Promise.all(['admin-secret', 'wrong'].map((password) => recordingBroker(t, `admin:${password}@${server.brokers}`, { sasl: 'plain', topicPrefix: prefix() })))
  if (!right || !wrong) return
  right.consume('image', handled)
  await publishUntilReceived(right, right)
  await until(() => /refuses the user admin/.test(wrong.health().detail))
  const tls = await recordingBroker(t, `admin:admin-secret@${server.brokers}`, { sasl: 'plain', tls: 'true', topicPrefix: prefix() })
  await until(() => /closes the connection .*: tls and sasl/.test(tls.health().detail))
  t.match(right.warnings, [{ message: /unencrypted/ }])
})
