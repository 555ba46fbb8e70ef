/** An alert on a node: the chart with its ServiceMonitor, rules and dashboards; a dispatcher that cannot start; and the runbook's commands, which name the cause. The rules are those of the chart, with their times. */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { stringify } from 'yaml'
import { helm } from '../chart/chart.ts'
import { answer, at, get, post } from '../flows/calls.ts'
import { REPOSITORY } from '../flows/program.ts'
import { answersOf } from '../monitoring/alert-drill.ts'
import { openLoad } from '../pods/load.ts'
import { documents } from '../pods/manifests.ts'
import { GATE, openSite, secrets, until, type Site } from '../pods/site.ts'
import { missing } from '../servers/client.ts'
import { command } from '../servers/command.ts'
import type { Answered } from '../servers/kube/api.ts'
import { NETWORK } from '../servers/kube/node-files.ts'
import { kubectl as kubectlProgram } from '../servers/kubernetes.ts'
import { ownPrometheus, type Targets } from '../servers/prometheus.ts'
import { folderFor } from '../temporary-folder.ts'
import { install, reader, type Read } from './installation.ts'
import { openSteps } from './steps.ts'

const ALERT = 'TollgateRoleMissing'
/** Longer than the alert's own time and that of the last samples. */
const ALERT_MS = 1_800_000
const PAGE = `docs/runbooks/${ALERT}.md`

t.setTimeout(3_600_000)

/** The paths of the webhooks that arrive at the node's end of the machine. */
async function openWebhooks(t: Test): Promise<{ url: string; arrived: (string | undefined)[] }> {
  const arrived: (string | undefined)[] = []
  const server = createServer((request, response) => {
    arrived.push(request.url)
    request.resume().on('end', () => response.writeHead(204).end())
  })
  server.listen(0, NETWORK.HOST_ADDRESS)
  await once(server, 'listening')
  t.teardown(() => {
    server.close()
    server.closeAllConnections()
  })
  return { url: `http://${NETWORK.HOST_ADDRESS}:${(server.address() as AddressInfo).port}`, arrived }
}

/** The targets of a ServiceMonitor, with the labels that the Prometheus operator gives them. Debian's Prometheus cannot discover them in Kubernetes itself. */
async function targetsOf(read: Read, { spec }: Answered): Promise<Targets[]> {
  const { items } = await read('services,endpointslices,pods', '--namespace', GATE)
  const of = (kind: string): Answered[] => items.filter((one: Answered) => one.kind === kind)
  const isChosen = ({ metadata }: Answered) => Object.entries(spec.selector.matchLabels).every(([label, value]) => metadata.labels?.[label] === value)
  const podLabels = (name: string) => of('Pod').find(({ metadata }) => metadata.name === name)?.metadata.labels ?? {}
  const labelsOf = (pod: string) => Object.fromEntries((spec.podTargetLabels as string[]).map((label) => [label.replaceAll(/\W/g, '_'), podLabels(pod)[label] ?? '']))
  return of('Service').filter(isChosen).flatMap(({ metadata: { name: service } }) => {
    const slices = of('EndpointSlice').filter(({ metadata }) => metadata.labels['kubernetes.io/service-name'] === service)
    return slices.flatMap(({ endpoints, ports }) => (endpoints ?? []).map(({ addresses, targetRef }: Answered) => {
      const port = ports.find((one: Answered) => one.name === spec.endpoints[0].port).port
      return { targets: [`${addresses[0]}:${port}`], labels: { namespace: GATE, service, job: service, endpoint: spec.endpoints[0].port, pod: targetRef.name, __metrics_path__: spec.endpoints[0].path, ...labelsOf(targetRef.name) } }
    }))
  })
}

/** The namespace's pods are scraped, and webhooks reach the machine. */
const MONITORED = {
  networkPolicy: { metricsFrom: [{ namespaceSelector: {} }] },
  serviceMonitor: { enabled: true },
  prometheusRule: { enabled: true },
  grafanaDashboards: { enabled: true },
  settings: { EGRESS_ALLOW: `${NETWORK.HOST_ADDRESS}/32` },
}

/** The working set of each pod by kubelet's own count, which `kubectl top` shows, in MB. */
async function memory({ kubectl }: Site): Promise<string> {
  const seen = await kubectl(['get', '--raw', `/api/v1/nodes/${NETWORK.NODE}/proxy/metrics/resource`])
  const pods = seen.matchAll(new RegExp(`^pod_memory_working_set_bytes{namespace="${GATE}",pod="([^"]+)"} (\\S+)`, 'gm'))
  return [...pods].map(([, pod, bytes]) => `${pod} ${(Number(bytes) / 1e6).toFixed(1)} MB`).join(', ')
}

/** The commands of the runbook that are complete but for their placeholders. */
function commandsOf(labels: Record<string, string>): string[] {
  const page = readFileSync(join(REPOSITORY, PAGE), 'utf8')
  return [...page.matchAll(/`(kubectl [^`]*<role>)`/g)].map(([, text = '']) => text.replaceAll(/<(\w+)>/g, (_all, name: string) => labels[name] ?? ''))
}

t.test('a dispatcher that cannot start on a node: the alert fires, and the commands of its runbook name the missing Secret', async (t) => {
  if (missing(t, ['prometheus', 'chart-crds'])) return
  const { step, end } = openSteps(t)
  const site = await step('a node, its servers and the image', () => openSite(t))
  if (site === null) return
  const { kubectl, node } = site
  const folder = await folderFor(t)
  const read = reader(site)
  const crds = ['prometheusrules', 'servicemonitors'].map((plural) => `monitoring.coreos.com_${plural}`)
  const { gateway, keys } = await step('helm install with ServiceMonitor, rules and dashboards', () => install(t, site, crds, MONITORED))

  const monitor = await read('servicemonitor', 'tollgate', '--namespace', GATE)
  const rules = join(folder, 'rules.yaml')
  await writeFile(rules, stringify({ groups: (await read('prometheusrule', 'tollgate', '--namespace', GATE)).spec.groups }))
  const prometheus = await ownPrometheus(t, () => targetsOf(read, monitor), [rules])
  if (prometheus === null) return
  const pods = async () => Object.fromEntries((await prometheus.query('sum by (app_kubernetes_io_component) (up)')).map(({ metric, value }) => [metric['app_kubernetes_io_component'], Number(value[1])]))
  const all = { controller: 2, dispatcher: 1, gateway: 2, worker: 2 }
  await step('every pod is scraped', () => until(async () => JSON.stringify(Object.entries(await pods()).sort()) === JSON.stringify(Object.entries(all))))
  const firing = async () => (await prometheus.alerts()).filter(({ state }) => state === 'firing').map(({ labels }) => labels)

  await step('idle pods', () => pause(60_000))
  t.comment(await memory(site))

  const webhooks = await openWebhooks(t)
  const order = async (path: string) => {
    const { body } = await answer(await post(gateway, keys.media, '/api/v1/generations', { kind: 'image', prompt: 'a lighthouse', size: '64x64', webhook_url: `${webhooks.url}${path}` }))
    await until(async () => at((await get(gateway, keys.media, `/api/v1/generations/${String(at(body, 'id'))}`)).body, 'status') === 'completed')
  }
  await order('/before')
  await until(async () => webhooks.arrived.includes('/before'))
  t.same(await firing(), [], 'no alert fires')
  const load = openLoad(gateway, keys, { clients: 1, again: false })

  await step('the Secret of the broker is deleted, and the dispatcher leaves its node', async () => {
    await kubectl(['delete', 'secret', 'tollgate-broker', '--namespace', GATE])
    await kubectl(['delete', 'pod', '--namespace', GATE, '--selector', 'app.kubernetes.io/component=dispatcher'])
  })
  await order('/during')
  await step(`${ALERT} fires`, () => until(async () => (await firing()).length > 0, ALERT_MS))
  const [alert = {}, ...others] = await firing()
  t.match(alert, { alertname: ALERT, namespace: GATE, role: 'dispatcher', severity: 'critical' })
  t.same(others, [], 'no other alert fires')
  const running = ['controller', 'gateway', 'worker'].map((role) => `${GATE} ${role} 2`)
  t.same((await answersOf(prometheus, ALERT)).map((answer) => answer.split('; ').sort()), [running, running, ['']], 'the queries count the processes of each role')
  t.notOk(webhooks.arrived.includes('/during'), 'what users see: no webhook')

  const said = await Promise.all(commandsOf(alert).map((text) => command('sh', ['-c', text.replace('kubectl', `${kubectlProgram()} --kubeconfig ${node.kubeconfig}`)])))
  t.match(said, [/tollgate-dispatcher +0\/1/, /tollgate-dispatcher-\S+ +0\/1 +ContainerCreating/, /FailedMount[^]*secret "tollgate-broker" not found/], 'the commands of the runbook')
  await t.rejects(helm(['test', 'tollgate', '--namespace', GATE], node.kubeconfig), { message: /Deployment tollgate-dispatcher are not ready: .*secret \\?"tollgate-broker\\?" not found/ }, 'helm test')

  await step('the Secret is there again: the webhook arrives, and the alert ends', async () => {
    await kubectl(['apply', '--filename', '-'], { input: documents(secrets(site).filter((one) => (one as Answered).metadata.name === 'tollgate-broker')) })
    await until(async () => webhooks.arrived.includes('/during'), ALERT_MS)
    await until(async () => (await firing()).length === 0, ALERT_MS)
  })
  const { done, failed } = await load.stop()
  t.comment(`${done} calls meanwhile, ${failed.length} failed`)
  t.same(failed, [])
  end()
})
