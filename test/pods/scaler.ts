/**
 * KEDA's part on the node, whose image cannot be had: a HorizontalPodAutoscaler from each ScaledObject, as KEDA makes it, and the metrics of its triggers, by the API for external metrics, from
 * Kafka and Prometheus themselves. The rest is Kubernetes' own.
 */
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { withAdmin } from '../backends/broker/recording-broker.ts'
import type { Answered } from '../servers/kube/api.ts'
import { openAuthority } from '../servers/kube/authority.ts'
import { NETWORK } from '../servers/kube/node-files.ts'
import type { Prometheus } from '../servers/prometheus.ts'
import { documents } from './manifests.ts'
import { GATE, type Site } from './site.ts'

type Trigger = { type: string; metadata: Record<string, string> }

const GROUP = 'external.metrics.k8s.io'
const NAME = 'scaler'
const NAMESPACE = 'kube-system'

/** Scales what the ScaledObjects of the installation name until the end of the test. */
export async function openScaler(t: Test, { kubectl, brokers }: Pick<Site, 'kubectl' | 'brokers'>, prometheus: Prometheus): Promise<void> {
  const scaled: Answered[] = JSON.parse(await kubectl(['get', 'scaledobjects', '--namespace', GATE, '--output=json'])).items
  const triggers = new Map<string, Trigger>()
  const autoscalers = scaled.map(({ metadata: { name }, spec }) => {
    const metrics = (spec.triggers as Trigger[]).map((trigger, n) => {
      triggers.set(`s${n}-${name}`, trigger)
      const { lagThreshold, threshold } = trigger.metadata
      const averageValue = lagThreshold ?? threshold
      return { type: 'External', external: { metric: { name: `s${n}-${name}`, selector: { matchLabels: { 'scaledobject.keda.sh/name': name } } }, target: { type: 'AverageValue', averageValue } } }
    })
    const { scaleTargetRef, minReplicaCount: minReplicas, maxReplicaCount: maxReplicas } = spec
    return { apiVersion: 'autoscaling/v2', kind: 'HorizontalPodAutoscaler', metadata: { name: `keda-hpa-${name}`, namespace: GATE }, spec: { scaleTargetRef, minReplicas, maxReplicas, metrics } }
  })

  async function valueOf({ type, metadata }: Trigger): Promise<number> {
    if (type === 'kafka') return lagOf(brokers, metadata['topic'] ?? '', metadata['consumerGroup'] ?? '')
    return Number((await prometheus.query(metadata['query'] ?? ''))[0]?.value[1] ?? 0)
  }

  const server = createServer(await certificate(), async ({ url = '' }, response) => {
    const path = url.split('?')[0]?.split('/') ?? []
    const trigger = triggers.get(path[6] ?? '')
    const answer = async (): Promise<object> => {
      if (!trigger) return { kind: 'APIResourceList', apiVersion: 'v1', groupVersion: `${GROUP}/v1beta1`, resources: [{ name: 'externalmetrics', singularName: '', namespaced: true, kind: 'ExternalMetricValueList', verbs: ['get'] }] }
      const item = { metricName: path[6], metricLabels: {}, timestamp: new Date().toISOString(), value: `${Math.round(1000 * (await valueOf(trigger)))}m` }
      return { kind: 'ExternalMetricValueList', apiVersion: `${GROUP}/v1beta1`, metadata: {}, items: [item] }
    }
    const body = path[1] === 'apis' ? await answer().catch(() => null) : null
    response.writeHead(body ? 200 : 404, { 'content-type': 'application/json' }).end(JSON.stringify(body ?? {}))
  })
  await once(server.listen(0, NETWORK.HOST_ADDRESS), 'listening')
  const { port } = server.address() as AddressInfo
  const ports = [{ name: 'https', port, protocol: 'TCP' }]
  const objects = documents([
    { apiVersion: 'v1', kind: 'Service', metadata: { name: NAME, namespace: NAMESPACE }, spec: { ports: [{ name: 'https', port: 443, targetPort: port }] } },
    { apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice', metadata: { name: NAME, namespace: NAMESPACE, labels: { 'kubernetes.io/service-name': NAME } }, addressType: 'IPv4', endpoints: [{ addresses: [NETWORK.HOST_ADDRESS] }], ports },
    {
      apiVersion: 'apiregistration.k8s.io/v1',
      kind: 'APIService',
      metadata: { name: `v1beta1.${GROUP}` },
      spec: { group: GROUP, version: 'v1beta1', service: { name: NAME, namespace: NAMESPACE }, insecureSkipTLSVerify: true, groupPriorityMinimum: 100, versionPriority: 100 },
    },
    ...autoscalers,
  ])
  await kubectl(['apply', '--filename', '-'], { input: objects })
  t.teardown(async () => {
    await kubectl(['delete', '--filename', '-'], { input: objects })
    server.close()
    server.closeAllConnections()
  })
}

/** Messages that the group has not handled yet. */
async function lagOf(brokers: string, topic: string, group: string): Promise<number> {
  return withAdmin(brokers, async (admin) => {
    const [ends, [own]] = await Promise.all([admin.fetchTopicOffsets(topic), admin.fetchOffsets({ groupId: group, topics: [topic] })])
    const handled = new Map(own?.partitions.map(({ partition, offset }) => [partition, Number(offset)]))
    return ends.reduce((lag, { partition, high, low }) => {
      const at = handled.get(partition) ?? -1
      return lag + Number(high) - (at < 0 ? Number(low) : at)
    }, 0)
  })
}

async function certificate(): Promise<{ cert: Buffer; key: Buffer }> {
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-scaler-'))
  try {
    const authority = await openAuthority(folder)
    await authority.certificate('scaler', `/CN=${NAME}`, `subjectAltName=IP:${NETWORK.HOST_ADDRESS}`, 'extendedKeyUsage=serverAuth')
    const [cert, key] = (await Promise.all(['scaler.crt', 'scaler.key'].map((name) => readFile(join(folder, name))))) as [Buffer, Buffer]
    return { cert, key }
  } finally {
    await rm(folder, { recursive: true })
  }
}
