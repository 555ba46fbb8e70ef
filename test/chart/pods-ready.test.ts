/** The program of `helm test`: the sentence with which it names the reason why a Deployment's pods are not ready, and its end. */
import { join } from 'node:path'
import t from 'tap'
import { command } from '../servers/command.ts'
import { CHART } from './chart.ts'

// Plain JavaScript without types: the chart mounts the file as it is.
const { whyNotReady } = await import(join(CHART, 'files/test.mjs'))

type Status = Record<string, unknown>

const labels = { 'app.kubernetes.io/component': 'gateway' }
const deployment = (status: Status) => ({ metadata: { name: 'tollgate-gateway', generation: 2 }, spec: { replicas: 2, selector: { matchLabels: labels } }, status: { observedGeneration: 2, ...status } })
const pod = (status: Status, metadata: object = {}) => ({ metadata: { uid: 'one', labels: { ...labels, release: 'tollgate' }, ...metadata }, status })
const container = (state: object, lastState: object = {}) => ({ conditions: [{ type: 'Ready', status: 'False' }], containerStatuses: [{ state, lastState }] })
const warning = (reason: string, message: string, uid = 'one') => ({ type: 'Warning', reason, message, involvedObject: { uid } })
const none = 'pods of the Deployment tollgate-gateway are not ready: '

t.test('a Deployment whose pods are all new and ready has no reason', async (t) => {
  t.equal(whyNotReady(deployment({ updatedReplicas: 2, readyReplicas: 2 }), [], []), null)
  t.equal(whyNotReady(deployment({ updatedReplicas: 1, readyReplicas: 2 }), [], [])?.isStuck, false, 'an upgrade is still replacing pods')
  t.equal(whyNotReady(deployment({ observedGeneration: 1, updatedReplicas: 2, readyReplicas: 2 }), [], [])?.isStuck, false, 'nobody has acted on its last change')
})

const cases: [string, ReturnType<typeof pod>[], ReturnType<typeof warning>[], string, boolean][] = [
  ['without a pod', [], [], 'its pods are being created', false],
  ['with a pod on its way', [pod(container({ waiting: { reason: 'ContainerCreating' } }))], [], 'it is starting', false],
  ['with a missing Secret', [pod(container({ waiting: { reason: 'ContainerCreating' } }))], [warning('FailedMount', 'of another', 'two'), warning('FailedMount', 'secret "upstream-keys" not found')], 'secret "upstream-keys" not found', true],
  ['with an image that is not there', [pod(container({ waiting: { reason: 'ImagePullBackOff', message: 'no such tag' } }))], [], 'ImagePullBackOff: no such tag', true],
  ['with a refused start', [pod(container({ waiting: { reason: 'CrashLoopBackOff', message: 'back-off' } }, { terminated: { exitCode: 1, reason: 'Error', message: 'PORT was "x".\n' } }))], [], 'PORT was "x". (exit code 1)', true],
  ['with a pod that started again', [pod(container({ running: {} }, { terminated: { exitCode: 1, reason: 'Error' } }))], [], 'Error (exit code 1)', false],
  ['without a node', [pod({ conditions: [{ type: 'PodScheduled', status: 'False', message: '0/3 nodes are available' }] })], [], '0/3 nodes are available', false],
  ['with a pod that is not ready yet', [pod(container({ running: {} }))], [warning('Unhealthy', 'Readiness probe failed: 503')], 'Readiness probe failed: 503', false],
  ['with a stuck pod after one that starts', [pod(container({ running: {} })), pod(container({ waiting: { reason: 'InvalidImageName', message: 'x' } }))], [], 'InvalidImageName: x', true],
  ['with a broken pod that is being removed', [pod(container({ waiting: { reason: 'InvalidImageName', message: 'x' } }), { deletionTimestamp: 'now' })], [], 'its pods are being created', false],
  ['with the pod of another', [pod(container({ waiting: { reason: 'InvalidImageName', message: 'x' } }), { labels: {} })], [], 'its pods are being created', false],
]
for (const [what, pods, events, reason, isStuck] of cases) {
  t.test(`${what} the reason is that of the pod`, async (t) => {
    t.same(whyNotReady(deployment({}), pods, events), { isStuck, sentence: `${none}${reason}` })
  })
}

t.test('a namespace that refuses the pods is the reason', async (t) => {
  const refused = deployment({ conditions: [{ type: 'ReplicaFailure', status: 'True', message: 'exceeded quota: small' }] })
  t.same(whyNotReady(refused, [], []), { isStuck: true, sentence: `${none}exceeded quota: small` })
})

/** Stands in for the API server and the gateway. The connection breaks with the first object to remove at the end. */
const CLUSTER = `
  import fs from 'node:fs'
  import https from 'node:https'
  import { EventEmitter } from 'node:events'
  import { syncBuiltinESMExports } from 'node:module'
  const { readFileSync } = fs
  fs.readFileSync = (path, ...how) => (String(path).includes('serviceaccount') ? 'token' : readFileSync(path, ...how))
  let isSuspended = false
  const status = () => ({ conditions: [isSuspended ? { type: 'Ready', status: 'False', reason: 'PlanSuspended' } : { type: 'Ready', status: 'True' }] })
  https.request = ({ method, path }, answered) => {
    isSuspended ||= method === 'PATCH'
    const sent = new EventEmitter()
    sent.end = () => setImmediate(() => {
      if (method === 'DELETE' && isSuspended) console.log('DELETE ' + path.split('/').at(-2))
      if (method === 'DELETE' && isSuspended && path.includes('apikeys')) return sent.emit('error', new Error('ECONNRESET'))
      const body = { items: [], data: { 'api-key': '' }, status: status() }
      answered({ statusCode: method === 'POST' ? 201 : 200, toArray: async () => [JSON.stringify(body)] })
    })
    return sent
  }
  globalThis.fetch = async (_, { method }) => ({ status: method === 'GET' ? 200 : 403, text: async () => '' })
  syncBuiltinESMExports()
`

t.test('a passed test stays passed if an object cannot be removed, and the other is removed nonetheless', async () => {
  const lines = await command(process.execPath, ['--import', `data:text/javascript,${encodeURIComponent(CLUSTER)}`, join(CHART, 'files/test.mjs'), 'acme', 'test', 'http://gateway', 'tollgate', 'tollgate'])
  t.match(lines, /the test passed\nDELETE apikeys\nDELETE plans\n$/)
})
