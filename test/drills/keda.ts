/** KEDA on a node: a queue of tasks adds workers by the chart's ScaledObject, and its end removes them. */
import { dirname, join } from 'node:path'
import t from 'tap'
import { answer, at, get, post } from '../flows/calls.ts'
import { GATE, openSite, until } from '../pods/site.ts'
import { installed, missing } from '../servers/client.ts'
import type { Answered } from '../servers/kube/api.ts'
import { NETWORK } from '../servers/kube/node-files.ts'
import { freePort } from '../servers/process.ts'
import { ownPrometheus } from '../servers/prometheus.ts'
import { install, reader } from './installation.ts'
import { openSteps } from './steps.ts'

/** Open at a time: more than four workers of two slots have. */
const OPEN = 24
const [FEWEST, MOST] = [2, 4]
/** Films are slow, and KEDA waits before it removes workers. */
const SCALING_MS = 1_800_000
const FILM = { kind: 'video', prompt: 'a lighthouse', size: '1280x720', duration_seconds: 10 }

t.setTimeout(3_600_000)

t.test('a queue of tasks scales the workers up, and its end scales them down', async (t) => {
  if (missing(t, ['keda', 'prometheus', 'chart-crds'])) return
  const { step, end } = openSteps(t)
  const site = await step('a node, its servers and the image', () => openSite(t))
  if (site === null) return
  const { kubectl, node } = site
  const read = reader(site)
  const workers = async (): Promise<Answered[]> => (await read('pods', '--namespace', GATE, '--selector', 'app.kubernetes.io/component=worker')).items.filter(({ status }: Answered) => status.podIP)
  const scraped = async () => (await workers()).map(({ metadata, status }) => ({ targets: [`${status.podIP}:9090`], labels: { namespace: GATE, pod: metadata.name } }))
  const port = await freePort()
  const prometheus = await ownPrometheus(t, scraped, [], { address: NETWORK.HOST_ADDRESS, port })
  if (prometheus === null) return

  const manifests = dirname(installed('keda'))
  await step('KEDA', async () => {
    for (const program of ['keda', 'keda-adapter']) await node.importImage(join(manifests, `../${program}.tar`))
    await kubectl(['apply', '--server-side', '--kustomize', manifests])
    await kubectl(['wait', 'deployments', '--all', '--namespace', 'keda', '--for=condition=Available', '--timeout=600s'])
  })
  const keda = { enabled: true, minReplicas: FEWEST, maxReplicas: MOST, serverAddress: `http://${NETWORK.HOST_ADDRESS}:${port}`, kafka: { bootstrapServers: site.brokers } }
  const { gateway, keys } = await step('helm install with a ScaledObject', () => install(t, site, [], {
    worker: { slots: 2, keda, resources: { requests: { cpu: '50m' } } },
    networkPolicy: { metricsFrom: [{ ipBlock: { cidr: `${NETWORK.HOST_ADDRESS}/32` } }] },
  }))
  await kubectl(['wait', 'scaledobjects', '--all', '--namespace', GATE, '--for=condition=Ready', '--timeout=300s'])
  const deployment = async (): Promise<Answered> => read('deployment', 'tollgate-worker-all', '--namespace', GATE)
  t.equal((await deployment()).spec.replicas, FEWEST)

  const order = async () => String(at((await answer(await post(gateway, keys.media, '/api/v1/generations', FILM))).body, 'id'))
  const isOpen = async (id: string) => at((await get(gateway, keys.media, `/api/v1/generations/${id}`)).body, 'status') !== 'completed'
  let open: string[] = []
  const look = async () => void (open = (await Promise.all(open.map(async (id) => ((await isOpen(id)) ? id : [])))).flat())
  await step(`${OPEN} films are open at a time: ${MOST} workers are ready`, () => until(async () => {
    await look()
    open.push(...(await Promise.all(Array.from({ length: OPEN - open.length }, order))))
    return (await deployment()).status.readyReplicas === MOST
  }, SCALING_MS))
  await step('every film is completed', () => until(async () => (await look(), open.length === 0), SCALING_MS))
  await step(`${FEWEST} workers are left`, () => until(async () => (await deployment()).status.replicas === FEWEST, SCALING_MS))
  t.comment((await kubectl(['get', 'events', '--namespace', GATE, '--field-selector', 'reason=SuccessfulRescale', '--output', 'custom-columns=MESSAGE:.message', '--no-headers'])).trim())
  end()
})
