/** What the chart promises, read from what Helm makes of it. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { generated } from '../../charts/generate.ts'
import { readConfig, SETTINGS } from '../../src/config/config.ts'
import { readTraceSettings } from '../../src/config/trace-settings.ts'
import type { Role } from '../../src/config/needed-backends.ts'
import { KINDS } from '../../src/domain/media-generations.ts'
import { OPERATIONS } from '../../src/domain/media-operations.ts'
import { parsePlanLimits } from '../../src/domain/plan-limits-by-namespace.ts'
import { readAddress } from '../../src/backends/resources/kubernetes/kubernetes-url.ts'
import { LIMITS } from '../../src/tasks/receive-upload.ts'
import { parseProxyRoutes } from '../../plugins/proxy/routes-file.ts'
import { blocksOf } from '../page-blocks.ts'
import { missing } from '../servers/client.ts'
import type { Answered } from '../servers/kube/api.ts'
import { CASES, CHART, found, helm, HELMS, NAMESPACE, nameOf, objects, parsed, pods, valuesOf } from './chart.ts'

/** The names of the accounts and workloads that ask the API server. */
const asks = (name: string) => (name === 'dashboard' ? /-(controller|test|gateway)$/ : /-(controller|test)$/)

/** As a value: whoever asks may call the gateways. */
const EVERYBODY = 'networkPolicy.ingressFrom=[{"namespaceSelector":{}}]'

const ROOT = join(import.meta.dirname, '../..')

t.test('the CRDs, the settings and the table of values are those of the tree', async (t) => {
  for (const [path, text] of Object.entries(generated())) t.equal(readFileSync(join(ROOT, path), 'utf8'), text, `${path}: node charts/generate.ts writes it`)
})

t.test('every value has a description, a default that the schema takes, and no neighbour that nobody knows', async (t) => {
  const schema = JSON.parse(readFileSync(join(CHART, 'values.schema.json'), 'utf8'))
  const look = (at: string, { description, properties, items, additionalProperties }: Answered) => {
    if (at !== '') t.type(description, 'string', at)
    if (properties) t.equal(additionalProperties, false, at)
    for (const [name, member] of Object.entries<Answered>(properties ?? {})) look(`${at}.${name}`, member)
    if (items?.properties) look(`${at}[]`, { description, ...items })
  }
  look('', schema)
  const pool = schema.properties.workerPools.items.properties
  for (const properties of [schema.properties.worker.properties, pool]) t.same(properties.kinds.items.enum, [...KINDS, ...OPERATIONS])
})

if (!missing(t, ['helm'])) {
  for (const which of HELMS) {
    t.test(`${which} lint finds nothing, and ${which} template makes the same as Helm 4`, async (t) => {
      if (missing(t, [which])) return
      for (const name of CASES) {
        t.match(await helm(['lint', CHART, '--strict', ...valuesOf(name)], undefined, which), '1 chart(s) linted, 0 chart(s) failed', name)
        const byName = (all: Answered[]) => Object.fromEntries(all.map((one) => [`${nameOf(one)} ${one.metadata.namespace}`, one]))
        if (which !== 'helm') t.same(byName(await objects(name, [], which)), byName(await objects(name)), name)
      }
    })
  }

  for (const name of CASES) {
    t.test(`${name}: each role's environment is settings that the program takes, for that role`, async (t) => {
      const all = await objects(name)
      for (const [pod, { spec }] of pods(all).filter(([pod]) => pod.startsWith('Deployment'))) {
        const [{ args, env, volumeMounts }] = spec.containers
        const given = Object.fromEntries(env.filter(({ value }: Answered) => value !== undefined).map(({ name, value }: Answered) => [name, value])) as Record<string, string>
        const foreign = Object.keys(given).filter((variable) => !Object.hasOwn(SETTINGS, variable.replace(/^(STORE_URL|BROKER_URL|OIDC_CLIENT_SECRET)_FILE$/, '$1')) && !variable.startsWith('OTEL_'))
        t.same(foreign, ['everything', 'extended'].includes(name) ? ['NODE_EXTRA_CA_CERTS'] : [], pod)
        const mounted = volumeMounts.map(({ mountPath }: Answered) => mountPath)
        for (const path of Object.values(given).flatMap((value) => value.match(/\/etc\/tollgate\/[a-z-]+/g) ?? [])) t.ok(mounted.includes(path), `${pod} mounts ${path}`)
        // The files are read by the program's own start: here they are what they stand for.
        const { STORE_URL_FILE, BROKER_URL_FILE, OIDC_CLIENT_SECRET_FILE: _secret, RESOURCES_URL = 'kubernetes:', ...rest } = given
        t.same([STORE_URL_FILE !== undefined, BROKER_URL_FILE !== undefined], [true, args[0] !== 'controller'], pod)
        const stood = { ...rest, STORE_URL: 'mongodb://mongodb', BROKER_URL: 'kafka://kafka:9092', RESOURCES_URL }
        t.equal(readConfig(stood, args[0]).config.ROLE, args[0] as Role)
        t.equal(readTraceSettings(stood) !== null, ['everything', 'extended'].includes(name), pod)
        t.ok(readAddress(RESOURCES_URL))
      }
    })

    t.test(`${name}: a pod's grace is longer than the program's own`, async (t) => {
      for (const [pod, { spec }] of pods(await objects(name)).filter(([pod]) => pod.startsWith('Deployment'))) {
        const of = (variable: string) => Number(spec.containers[0].env.find((entry: Answered) => entry.name === variable)?.value ?? 0)
        // closeWithGrace adds ten seconds.
        t.ok(spec.terminationGracePeriodSeconds > of('DRAIN_DELAY_SECONDS') + of('SHUTDOWN_SECONDS') + 10, pod)
      }
    })

    t.test(`${name}: pods are restricted, name their limits, and only what asks the API server has a token`, async (t) => {
      for (const [pod, { spec }] of pods(await objects(name))) {
        t.match(spec.securityContext, { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } }, pod)
        const ids = ['runAsUser', 'runAsGroup', 'fsGroup'].flatMap((id) => [spec.securityContext[id], spec.containers[0].securityContext[id]])
        // OpenShift's restricted-v2 assigns them, and refuses pods that name their own.
        t.same(ids, name === 'extended' ? Array(6).fill(undefined) : [65532, 65532, 65532, 65532, 65532, undefined], pod)
        t.same([spec.automountServiceAccountToken, spec.enableServiceLinks, spec.hostNetwork, spec.hostPID], [false, false, undefined, undefined], pod)
        for (const { securityContext, resources, volumeMounts } of spec.containers) {
          t.match(securityContext, { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, runAsNonRoot: true, capabilities: { drop: ['ALL'] } }, pod)
          for (const resource of ['cpu', 'memory', 'ephemeral-storage']) t.ok(resources.limits[resource] && resources.requests[resource], `${pod} ${resource}`)
          const written = volumeMounts.filter(({ readOnly }: Answered) => readOnly !== true).map(({ mountPath }: Answered) => mountPath)
          t.same(written, pod.includes('-worker-') ? ['/tmp'] : [], pod)
        }
        const tokens = spec.volumes.filter(({ projected }: Answered) => projected?.sources.some(({ serviceAccountToken }: Answered) => serviceAccountToken))
        t.equal(tokens.length, asks(name).test(pod) ? 1 : 0, pod)
      }
    })

    t.test(`${name}: nothing is bound to the accounts of workers and dispatchers, nor of gateways that write no keys`, async (t) => {
      const bound = (await objects(name)).filter(({ kind }) => kind.endsWith('RoleBinding')).flatMap(({ subjects }: Answered) => subjects.map((subject: Answered) => subject.name))
      t.ok(bound.every((account: string) => asks(name).test(account)), bound.join(' '))
    })

    t.test(`${name}: a selector has its pods, and names are not used twice`, async (t) => {
      const all = await objects(name)
      const names = all.map((one) => `${nameOf(one)} ${one.metadata.namespace}`)
      t.equal(new Set(names).size, names.length)
      const labels = pods(all).map(([, { metadata }]) => metadata.labels as Record<string, string>)
      for (const one of all) {
        const selector = one.kind === 'Service' ? one.spec.selector : (one.spec?.podSelector ?? one.spec?.selector)?.matchLabels
        if (!selector || one.kind === 'ServiceMonitor') continue
        const more: Answered[] = one.spec.podSelector?.matchExpressions ?? []
        const chosen = labels.filter((have) => Object.entries(selector).every(([label, value]) => have[label] === value) && more.every(({ key, values }) => values.includes(have[key])))
        t.ok(chosen.length > 0, nameOf(one))
        if (one.kind !== 'NetworkPolicy') continue
        // As Polaris wants it, so that it sees whose policy it is.
        t.equal(Object.keys(selector).length, 1, nameOf(one))
        t.ok(one.spec.ingress.length > 0 && one.spec.egress.length > 0, nameOf(one))
        // The API server may run on nodes, which an ipBlock need not contain; the pod of `helm test` asks only it and the gateway.
        const open = one.spec.egress.filter(({ to }: { to?: object[] }) => !to).map(({ ports }: { ports: { port: number }[] }) => ports.map(({ port }) => port))
        const mayBeOpen = name !== 'extended' && asks(name).test(nameOf(one)) && !nameOf(one).endsWith('-test')
        t.same(open.filter(() => !nameOf(one).endsWith('-test')), mayBeOpen ? [[443, 6443]] : [], nameOf(one))
        for (const { to = [] } of one.spec.egress) {
          for (const { ipBlock } of to) if (ipBlock?.cidr.endsWith('/0')) t.ok(ipBlock.except.includes(ipBlock.cidr === '::/0' ? 'fe80::/10' : '169.254.0.0/16'), nameOf(one))
        }
      }
    })
  }

  t.test('the values of docs/chart.md are complete, and each further example goes over them', async (t) => {
    const [values = '', ...examples] = blocksOf('docs/chart.md').filter(({ language }) => language === 'yaml').map(({ text }) => text)
    t.ok(examples.length >= 4)
    const folder = t.testdir({ 'values.yaml': values.replace('sha256:…', `sha256:${'0'.repeat(64)}`), ...Object.fromEntries(examples.map((text, n) => [`${n}.yaml`, text])) })
    const files = ['values.yaml', ...examples.map((_, n) => `${n}.yaml`)].flatMap((name) => ['--values', join(folder, name)])
    t.ok(parsed(await helm(['template', 'tollgate', CHART, ...files.slice(0, 2)])).length > 20)
    t.ok(parsed(await helm(['template', 'tollgate', CHART, ...files])).length > 30)
  })

  t.test('gateways have the file of pass-through routes, from the values or from a Secret', async (t) => {
    const all = await objects('everything')
    const text = found(all, 'ConfigMap/tollgate-proxy-routes').data['proxy-routes.yaml']
    t.match(parseProxyRoutes('proxy-routes.yaml', text, new Set()), [{ prefix: '/search' }])
    const volume = (all: Answered[]) => found(all, 'Deployment/tollgate-gateway').spec.template.spec.volumes.find(({ name }: Answered) => name === 'proxy-routes').projected.sources
    const items = (key: string) => [{ key, path: 'proxy-routes.yaml' }]
    t.same(volume(all), [{ configMap: { name: 'tollgate-proxy-routes', items: items('proxy-routes.yaml') } }])
    t.same(volume(await objects('extended')), [{ secret: { name: 'routes', items: items('routes.yaml') } }])
    for (const [pod, { spec }] of pods(all)) t.equal(JSON.stringify(spec).includes('PROXY_ROUTES'), pod.endsWith('-gateway'), pod)
  })

  t.test('with an OTLP endpoint every role sends traces to it, samples as the values say, and reaches its port', async (t) => {
    const all = await objects('extended')
    for (const [pod, { spec }] of pods(all).filter(([pod]) => pod.startsWith('Deployment'))) {
      const traces = spec.containers[0].env.filter(({ name }: Answered) => name.startsWith('OTEL_'))
      t.same(traces, [
        { name: 'OTEL_EXPORTER_OTLP_ENDPOINT', value: 'https://otlp.example.com' },
        { name: 'OTEL_TRACES_SAMPLER', value: 'parentbased_traceidratio' },
        { name: 'OTEL_TRACES_SAMPLER_ARG', value: '0.010000' },
        { name: 'OTEL_EXPORTER_OTLP_HEADERS', valueFrom: { secretKeyRef: { name: 'otlp', key: 'headers' } } },
      ], pod)
    }
    const ports = async (name: string, role: string) => {
      const { egress } = found(await objects(name), `NetworkPolicy/tollgate-${role}`).spec
      return egress.filter(({ to }: Answered) => to).slice(1).flatMap(({ ports }: Answered) => ports.map(({ port }: Answered) => port))
    }
    t.same(await ports('required', 'controller'), [27017])
    t.same(await ports('everything', 'controller'), [27017, 4318, 8000])
    t.same(await ports('extended', 'controller'), [27017, 443, 443, 6443])
    t.same(await ports('everything', 'dispatcher'), [27017, 9092, 9093, 80, 443, 4318, 8000])
  })

  t.test('pods of every role have the labels, variables, volumes and certificate authorities that the values add', async (t) => {
    const all = await objects('extended')
    for (const role of ['gateway', 'dispatcher', 'controller', 'worker-all']) {
      const { metadata, spec } = found(all, `Deployment/tollgate-${role}`).spec.template
      t.equal(metadata.labels['example.com/team'], 'gateway', role)
      const env = spec.containers[0].env.filter(({ name }: Answered) => ['HOST_IP', 'NODE_EXTRA_CA_CERTS'].includes(name))
      t.same(env, [{ name: 'NODE_EXTRA_CA_CERTS', value: '/etc/tollgate/ca/ca.crt' }, { name: 'HOST_IP', valueFrom: { fieldRef: { fieldPath: 'status.hostIP' } } }], role)
      const volumes = Object.fromEntries(spec.volumes.map(({ name, ...volume }: Answered) => [name, volume]))
      t.same(volumes['plugin'], { configMap: { name: 'plugin' } }, role)
      t.same(volumes['ca'].projected.sources, [{ configMap: { name: 'authorities', items: [{ key: 'trust.pem', path: 'ca.crt' }] } }], role)
      const mounts = Object.fromEntries(spec.containers[0].volumeMounts.map(({ name, mountPath }: Answered) => [name, mountPath]))
      t.match(mounts, { plugin: '/plugin', ca: '/etc/tollgate/ca' }, role)
    }
  })

  t.test('every object but the CRDs has the common labels and annotations, Deployments and pods what the values add, and further objects stand as they are', async (t) => {
    const all = await objects('extended', ['--set', 'verify.schedule=@daily'])
    for (const [name, { spec }] of pods(all)) t.match(spec, { hostAliases: [{ ip: '10.0.0.9' }] }, name)
    for (const one of all.filter(({ kind, metadata }) => metadata.name !== 'beside' && kind !== 'CustomResourceDefinition')) {
      t.equal(one.metadata.labels['example.com/cost-center'], '17', nameOf(one))
      t.equal(one.metadata.annotations['example.com/owner'], 'platform', nameOf(one))
    }
    t.same(found(all, 'ConfigMap/beside').data, { text: '{{ stays }}' })
    for (const role of ['gateway', 'dispatcher', 'controller', 'worker-all']) {
      const { metadata, spec } = found(all, `Deployment/tollgate-${role}`)
      t.same([metadata.annotations, spec.revisionHistoryLimit], [{ 'reloader.stakater.com/auto': 'true', 'example.com/owner': 'platform' }, 5], role)
      t.equal(spec.template.metadata.labels['example.com/cost-center'], '17', role)
      t.equal(spec.selector.matchLabels['example.com/cost-center'], undefined, 'selectors are immutable')
      t.match(spec.template.spec, { dnsConfig: { options: [{ name: 'ndots', value: '2' }] } }, role)
      t.match(spec.template.spec.topologySpreadConstraints, [{ maxSkew: 2, topologyKey: 'example.com/rack', whenUnsatisfiable: 'DoNotSchedule', labelSelector: { matchLabels: spec.selector.matchLabels } }], role)
      t.equal(spec.template.spec.topologySpreadConstraints.length, 1)
    }
    t.match(found(await objects('everything'), 'Service/tollgate-gateway').spec, { loadBalancerClass: 'example.com/inner', externalTrafficPolicy: 'Local', ipFamilyPolicy: 'PreferDualStack' })
  })

  t.test('a role has an image, a strategy, probes, a budget and an account of its own where the values say so', async (t) => {
    const all = await objects('extended')
    const [common, own] = ['0', '1'].map((digit) => `sha256:${digit.repeat(64)}`)
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
    const images = { gateway: [`registry.example.com/tollgate:${version}@${common}`, 'Always'], controller: [`tollgate-control:${version}`, 'IfNotPresent'], 'worker-all': [`registry.example.com/tollgate:2@${own}`, 'Always'] }
    for (const [role, image] of Object.entries(images)) {
      const [container] = found(all, `Deployment/tollgate-${role}`).spec.template.spec.containers
      t.same([container.image, container.imagePullPolicy], image, role)
    }
    const { strategy, template } = found(all, 'Deployment/tollgate-worker-all').spec
    t.same(strategy, { type: 'Recreate' })
    t.same(found(all, 'Deployment/tollgate-gateway').spec.strategy, { type: 'RollingUpdate', rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } })
    const [{ readinessProbe, startupProbe }] = template.spec.containers
    t.same(readinessProbe, { httpGet: { path: '/readyz', port: 'ops' }, periodSeconds: 30, timeoutSeconds: 5, failureThreshold: 2 })
    t.same(startupProbe, { httpGet: { path: '/livez', port: 'ops' }, periodSeconds: 2, failureThreshold: 300 })
    const budgets = all.filter(({ kind }) => kind === 'PodDisruptionBudget').map(({ metadata, spec }) => [metadata.name, spec.maxUnavailable, spec.minAvailable])
    t.same(budgets, [['tollgate-gateway', '50%', undefined], ['tollgate-controller', '50%', undefined], ['tollgate-worker-all', undefined, 1]])
    const accounts = all.filter(({ kind, metadata }) => kind === 'ServiceAccount' && !metadata.name.endsWith('-test')).map(({ metadata }) => metadata.name)
    t.same(accounts, ['tollgate-gateway', 'tollgate-worker'])
    for (const [role, account] of Object.entries({ controller: 'existing-controller', dispatcher: 'sender', 'worker-all': 'tollgate-worker' })) {
      t.equal(found(all, `Deployment/tollgate-${role}`).spec.template.spec.serviceAccountName, account, role)
    }
    for (const name of ['RoleBinding/tollgate-lease', 'ClusterRoleBinding/tollgate-controller', 'ClusterRoleBinding/tollgate-controller-secrets']) {
      t.match(found(all, name).subjects, [{ name: 'existing-controller', namespace: NAMESPACE }], name)
    }
    const [condition] = found(all, `ValidatingAdmissionPolicy/${NAMESPACE}-tollgate-controller-secrets`).spec.matchConditions
    t.match(condition.expression, `'system:serviceaccount:${NAMESPACE}:existing-controller'`)
  })

  t.test('a pool replaces as a whole what only fits together', async (t) => {
    const digest = `sha256:${'2'.repeat(64)}`
    const pools = [
      { name: 'own', image: { tag: '3' }, strategy: { type: 'RollingUpdate', rollingUpdate: { maxSurge: 2 } }, podDisruptionBudget: { maxUnavailable: 2 } },
      { name: 'pinned', image: { tag: '3', digest }, replicas: 4, podDisruptionBudget: { minAvailable: 3 } },
      { name: 'same', image: { pullPolicy: 'Never' }, podDisruptionBudget: { enabled: true } },
    ]
    const worker = { strategy: { type: 'RollingUpdate', rollingUpdate: { maxSurge: 0, maxUnavailable: 1 } } }
    const all = await objects('extended', ['--set-json', `workerPools=${JSON.stringify(pools)}`, '--set-json', `worker.strategy=${JSON.stringify(worker.strategy)}`])
    const made = pools.map(({ name }) => {
      const { strategy, template } = found(all, `Deployment/tollgate-worker-${name}`).spec
      const { minAvailable, maxUnavailable } = found(all, `PodDisruptionBudget/tollgate-worker-${name}`).spec
      return [template.spec.containers[0].image, strategy.rollingUpdate, minAvailable, maxUnavailable]
    })
    t.same(made, [
      ['registry.example.com/tollgate:3', { maxSurge: 2 }, undefined, 2],
      [`registry.example.com/tollgate:3@${digest}`, { maxSurge: 0, maxUnavailable: 1 }, 3, undefined],
      [`registry.example.com/tollgate:2@sha256:${'1'.repeat(64)}`, { maxSurge: 0, maxUnavailable: 1 }, 1, undefined],
    ])
  })

  t.test('annotations and budgets that are null are those of nobody', async (t) => {
    const nothing = ['commonAnnotations', 'gateway.podDisruptionBudget', 'worker.podDisruptionBudget'].flatMap((value) => ['--set-json', `${value}=null`])
    t.match(found(await objects('required', nothing), 'PodDisruptionBudget/tollgate-gateway').spec, { maxUnavailable: 1 })
  })

  t.test('constraints that have a selector keep it', async (t) => {
    const constraint = { maxSkew: 1, topologyKey: 'example.com/rack', whenUnsatisfiable: 'ScheduleAnyway', labelSelector: { matchLabels: { mine: 'yes' } } }
    const all = await objects('required', ['--set-json', `topologySpread.constraints=[${JSON.stringify(constraint)}]`])
    for (const role of ['gateway', 'dispatcher', 'controller', 'worker-all']) t.same(found(all, `Deployment/tollgate-${role}`).spec.template.spec.topologySpreadConstraints, [constraint], role)
  })

  t.test('an empty list of ports opens none', async (t) => {
    const all = await objects('required', ['--set-json', 'networkPolicy.ports={"store":[27017],"broker":[],"web":[],"apiServer":[]}'])
    for (const role of ['gateway', 'worker', 'dispatcher', 'controller']) {
      const { egress } = found(all, `NetworkPolicy/tollgate-${role}`).spec
      t.ok(egress.every(({ ports }: Answered) => ports?.length > 0), role)
    }
  })

  t.test('a large number of `env` is written in digits', async (t) => {
    const all = await objects('required', ['--set-json', 'env={"OTEL_BSP_MAX_QUEUE_SIZE":2000000,"RATE":0.25,"ON":true}', '--set', 'verify.schedule=@daily'])
    const env = [{ name: 'ON', value: 'true' }, { name: 'OTEL_BSP_MAX_QUEUE_SIZE', value: '2000000' }, { name: 'RATE', value: '0.25' }]
    for (const [pod, { spec }] of pods(all).filter(([pod]) => !pod.startsWith('Job'))) {
      t.same(spec.containers[0].env.filter(({ name }: Answered) => env.some((one) => one.name === name)), env, pod)
    }
  })

  t.test('pods reach no service of a cloud that hands out credentials', async (t) => {
    for (const role of ['gateway', 'worker', 'dispatcher', 'controller']) {
      const { egress } = found(await objects('required'), `NetworkPolicy/tollgate-${role}`).spec
      const rules = egress.slice(1).filter(({ to }: Answered) => to)
      t.ok(rules.length > 0)
      for (const { to } of rules) t.same(to.flatMap(({ ipBlock }: Answered) => (ipBlock === undefined ? [] : [[ipBlock.cidr, ipBlock.except]])), [
        ['0.0.0.0/0', ['169.254.0.0/16', '100.100.100.200/32', '168.63.129.16/32', '192.0.0.192/32']],
        ['::/0', ['fe80::/10', 'fd00:ec2::254/128', 'fd00:ec2::23/128', 'fd20:ce::254/128', 'fd00:42::42/128']],
      ], role)
    }
  })

  t.test('pods reach each service only where the values say it is, and only those that their role needs', async (t) => {
    const peers = async (role: string) => {
      const { egress } = found(await objects('extended'), `NetworkPolicy/tollgate-${role}`).spec
      return Object.fromEntries(egress.slice(1).map(({ ports, to }: Answered) => [ports.map(({ port }: Answered) => port).join(), to]))
    }
    const store = [{ namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'databases' } } }]
    const broker = [{ ipBlock: { cidr: '10.1.2.0/24' } }]
    t.match(await peers('dispatcher'), { 27017: store, '9092,9093': broker, '80,443': [{ namespaceSelector: {} }, { ipBlock: { cidr: '0.0.0.0/0' } }, { ipBlock: { cidr: '::/0' } }] })
    t.same(Object.keys(await peers('controller')), ['443', '27017', '443,6443'])
    t.match(await peers('controller'), { 27017: store, '443,6443': [{ ipBlock: { cidr: '10.0.0.1/32' } }] })
  })

  t.test('nobody calls a gateway but helm test and those whom the values name, and nobody reads metrics but these', async (t) => {
    const peers = async (name: string, role: string, more: string[] = []) => {
      const { ingress } = found(await objects(name, more), `NetworkPolicy/tollgate-${role}`).spec
      return Object.fromEntries(ingress.map(({ ports, from }: Answered) => [ports?.[0].port ?? 'any', from.map(({ podSelector, ...peer }: Answered) => podSelector?.matchLabels?.['app.kubernetes.io/component'] ?? peer)]))
    }
    t.same(await peers('required', 'gateway'), { http: ['test'] })
    for (const role of ['worker', 'dispatcher', 'controller']) t.same(await peers('required', role), { any: [role] }, role)
    t.same(await peers('required', 'verify', ['--set', 'verify.schedule=@daily']), { any: ['verify'] })
    const named = (name: string) => ({ namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': name } } })
    t.same(await peers('everything', 'gateway'), { http: [named('ingress'), 'test'], ops: [named('monitoring')] })
    for (const role of ['worker', 'dispatcher', 'controller']) t.same(await peers('everything', role), { ops: [named('monitoring')] }, role)
    t.same(await peers('everything', 'verify'), { any: ['verify'] })
  })

  t.test('pods reach the DNS of the cluster, also that of OpenShift, and NodeLocal DNS', async (t) => {
    for (const [name, networks] of [['required', ['169.254.20.10/32']], ['extended', ['169.254.20.10/32', '10.96.0.10/32']]] as const) {
      const { egress } = found(await objects(name), 'NetworkPolicy/tollgate-dispatcher').spec
      const ports = [53, 5353].flatMap((port) => ['UDP', 'TCP'].map((protocol) => ({ port, protocol })))
      t.match(found(await objects(name), 'NetworkPolicy/tollgate-test').spec.egress[0].ports, ports)
      t.same(egress[0], { ports, to: [{ namespaceSelector: {} }, ...networks.map((cidr) => ({ ipBlock: { cidr } }))] }, name)
    }
  })

  t.test('the PodMonitor selects every pod, with the timeout and the relabelings of the values', async (t) => {
    const { selector, podMetricsEndpoints } = found(await objects('extended'), 'PodMonitor/tollgate').spec
    t.same(selector.matchLabels, { 'app.kubernetes.io/name': 'tollgate', 'app.kubernetes.io/instance': 'tollgate' })
    t.match(podMetricsEndpoints[0], { interval: '1m', scrapeTimeout: '20s', relabelings: [{ targetLabel: 'cluster' }], metricRelabelings: [{ action: 'drop' }] })
  })

  t.test('PLAN_LIMITS and the admission policies come from the same values', async (t) => {
    const all = await objects('everything')
    const { data } = found(all, 'ConfigMap/tollgate-plan-limits')
    const { limits } = parsePlanLimits('plan-limits.yaml', data['plan-limits.yaml'])
    t.same(all.filter(({ kind, metadata }) => kind === 'ValidatingAdmissionPolicy' && metadata.name.includes('plan-limits')).length, limits.length)
  })

  t.test('the dashboard is off until it is switched on; then gateways know the provider, and may write ApiKeys where that is given', async (t) => {
    const envOf = (all: Answered[]) => Object.fromEntries(found(all, 'Deployment/tollgate-gateway').spec.template.spec.containers[0].env.map(({ name, value }: Answered) => [name, value]))
    const off = await objects('required')
    t.equal(envOf(off)['DASHBOARD'], 'off')
    t.notOk(off.some((one) => nameOf(one).endsWith('Role/tollgate-gateway')))
    const all = await objects('dashboard')
    t.match(envOf(all), { DASHBOARD: 'oidc', OIDC_ISSUER: 'https://id.example.com:8443/realms/main', OIDC_CLIENT_ID: 'tollgate', OIDC_CLIENT_SECRET_FILE: '/etc/tollgate/oidc/secret', OIDC_TENANT_CLAIM: 'https://example.com/tenants', OIDC_SCOPES: 'openid profile', DASHBOARD_KEY_MANAGEMENT: 'true', RESOURCES_URL: 'kubernetes:' })
    t.same(found(all, 'ClusterRole/tollgate-gateway').rules, [{ apiGroups: ['tollgate.dev'], resources: ['apikeys'], verbs: ['get', 'list', 'create', 'patch'] }])
    const ports = found(all, 'NetworkPolicy/tollgate-gateway').spec.egress.flatMap(({ ports }: Answered) => ports.map(({ port }: Answered) => port))
    t.ok(ports.includes(8443) && ports.includes(6443), `${ports}`)
    const shown = await objects('dashboard', ['--set', 'dashboard.keyManagement=false'])
    t.equal(envOf(shown)['DASHBOARD_KEY_MANAGEMENT'], undefined)
    t.notOk(shown.some((one) => nameOf(one).endsWith('Role/tollgate-gateway')))
    t.same((await objects('dashboard', ['--set', 'namespaces={acme}', '--set', 'crds.enabled=false'])).map(nameOf).filter((one) => one.startsWith('Role/tollgate-gateway')), ['Role/tollgate-gateway in acme'])
  })

  t.test('the Ingress lets the largest upload of the dashboard through', async (t) => {
    const { annotations } = found(await objects('dashboard', ['--set', 'ingress.enabled=true', '--set-json', EVERYBODY]), 'Ingress/tollgate').metadata
    t.equal(annotations['nginx.ingress.kubernetes.io/proxy-body-size'], `${LIMITS.bytes / 2 ** 20}m`)
  })

  t.test('what a role does not need is not in its pods', async (t) => {
    const all = await objects('everything')
    const mounts = (name: string) => found(all, `Deployment/tollgate-${name}`).spec.template.spec.volumes.map((volume: Answered) => volume.name)
    t.same(mounts('gateway'), ['sealing', 'store', 'broker', 'files', 'upstreams', 'proxy-routes', 'engines'])
    t.same(mounts('worker-film'), ['sealing', 'store', 'broker', 'files', 'engines', 'scratch'])
    t.same(mounts('dispatcher'), ['sealing', 'store', 'broker'])
    t.same(mounts('controller'), ['sealing', 'store', 'engines', 'plan-limits', 'api-token'])

    const derived = await objects('everything', ['--set', 'derivedKeys.existingSecret=tollgate-derived'])
    const keysOf = (name: string) => {
      const { containers, volumes } = found(derived, `Deployment/tollgate-${name}`).spec.template.spec
      const names = containers[0].env.map((variable: Answered) => variable.name).filter((variable: string) => /^(SEALING|DERIVED)_/.test(variable))
      return [...names, ...volumes.map((volume: Answered) => volume.name).filter((volume: string) => /^(sealing|derived)$/.test(volume))]
    }
    for (const name of ['gateway', 'worker-film']) t.same(keysOf(name), ['DERIVED_KEYS_FILE', 'derived'], name)
    for (const name of ['dispatcher', 'controller']) t.same(keysOf(name), ['SEALING_KEY_FILE', 'sealing'], name)
  })

  t.test('a worker pool runs its kinds and operations, with scratch space of its own size within the limit of its pods', async (t) => {
    const all = await objects('everything')
    const pod = (name: string) => found(all, `Deployment/tollgate-worker-${name}`).spec.template.spec
    const kinds = (name: string) => pod(name).containers[0].env.find((one: Answered) => one.name === 'WORKER_KINDS').value
    t.same([kinds('pictures'), kinds('film'), kinds('edit')], ['image', 'video,music', 'trim,merge,upscale'])
    const scratch = (name: string) => pod(name).volumes.find((volume: Answered) => volume.name === 'scratch').emptyDir
    t.same([scratch('pictures'), scratch('edit')], [{ sizeLimit: '2Gi' }, { sizeLimit: '8Gi' }])
    t.equal(pod('edit').containers[0].resources.limits['ephemeral-storage'], '9Gi')
    for (const name of ['pictures', 'film', 'edit']) t.doesNotThrow(() => readConfig({ WORKER_KINDS: kinds(name) }, 'all'))
    await t.rejects(objects('everything', ['--set', 'workerPools[0].kinds[0]=fold']), /kinds/)
    await t.rejects(objects('everything', ['--set', 'worker.scratch.sizeLimit=much']), /sizeLimit/)
  })

  t.test('a namespaced installation has rights in its namespaces and nowhere else', async (t) => {
    const all = await objects('namespaced')
    t.same(all.filter(({ kind }) => /^Cluster|^Validating|^Mutating|^Custom|^PriorityClass/.test(kind)), [])
    const bindings = all.filter(({ kind, metadata }) => kind === 'RoleBinding' && !/-test(-pods)?$/.test(metadata.name)).map(nameOf)
    t.same(bindings.sort(), ['acme', 'globex'].flatMap((of) => [`RoleBinding/gate-controller in ${of}`, `RoleBinding/gate-controller-secrets in ${of}`]).concat('RoleBinding/gate-lease').sort())
    const { env } = found(all, 'Deployment/gate-controller').spec.template.spec.containers[0]
    const url = env.find(({ name }: Answered) => name === 'RESOURCES_URL').value
    t.match(readAddress(url), { namespaces: ['acme', 'globex'], lease: 'gate-controller' })
    t.same(found(all, 'Role/gate-lease').rules[1].resourceNames, ['gate-controller'])
    const confined = await objects('namespaced', ['--set', 'controller.secretPolicy=Always'])
    t.same(confined.filter(({ kind }) => /^Cluster|^Validating/.test(kind)).map(nameOf), ['Policy', 'PolicyBinding'].map((kind) => `ValidatingAdmission${kind}/gate-gate-controller-secrets`))
    t.notOk((await objects('required', ['--set', 'controller.secretPolicy=Never'])).some(({ kind, metadata }) => kind.startsWith('Validating') && metadata.name.endsWith('-controller-secrets')))
  })

  for (const [values, isGiven, roles] of [
    ['required', false, ['ClusterRole/tollgate-edit']],
    ['required', true, ['ClusterRole/tollgate-edit']],
    ['namespaced', false, ['Role/gate-edit in acme', 'Role/gate-edit in globex']],
    ['namespaced', true, ['Role/gate-edit in acme', 'Role/gate-edit in globex']],
  ] as const) {
    t.test(`${values}: who edits ${isGiven ? 'writes Plans where that is given' : 'writes ApiKeys and no Plans by default'}`, async (t) => {
      const all = await objects(values, isGiven ? ['--set', 'tenantRoles.tenantsWritePlans=true'] : [])
      const written = (name: string) => {
        const writing = found(all, name).rules.filter(({ verbs }: Answered) => verbs.some((verb: string) => !['get', 'list', 'watch'].includes(verb)))
        return writing.map(({ apiGroups, resources, resourceNames }: Answered) => [apiGroups, resources, resourceNames])
      }
      for (const role of roles) t.same(written(role), [[['tollgate.dev'], isGiven ? ['apikeys', 'plans'] : ['apikeys'], undefined]], role)
      for (const role of roles) t.same(written(role.replace('edit', 'view')), [], role)
      // What Kubernetes takes into its own roles beside these would be given to the same people.
      const into = all.filter(({ metadata }) => metadata.labels['rbac.authorization.k8s.io/aggregate-to-edit'] === 'true').map(nameOf)
      t.same(into, values === 'required' ? ['ClusterRole/tollgate-edit', 'ClusterRole/tollgate-view'] : [])
    })
  }

  t.test('the program takes the address of a namespaced installation', async (t) => {
    const { env } = found(await objects('namespaced'), 'Deployment/gate-controller').spec.template.spec.containers[0]
    const { value } = env.find(({ name }: Answered) => name === 'RESOURCES_URL')
    const given = { STORE_URL: 'mongodb://mongodb', SEALING_KEY_FILE: '/key', ENGINES: '/engines', RESOURCES_URL: value }
    t.equal(readConfig(given, 'controller').config.RESOURCES_URL, value)
  })

  t.test('what the HorizontalPodAutoscaler scales says no number of replicas, what KEDA scales begins with its least', async (t) => {
    const all = await objects('everything')
    const replicas = (name: string) => found(all, `Deployment/tollgate-${name}`).spec.replicas
    t.same([replicas('gateway'), replicas('worker-pictures'), replicas('worker-film')], [undefined, 2, 3])
  })

  t.test('KEDA scales a pool by the lag of each of its topics and by its running tasks per slot', async (t) => {
    const triggers = (all: Answered[], pool: string) => found(all, `ScaledObject/tollgate-worker-${pool}`).spec.triggers as Answered[]
    const [lag, running, ...more] = triggers(await objects('everything'), 'pictures')
    t.same(more, [])
    const metadata = { bootstrapServers: 'kafka.databases:9092', consumerGroup: 'tollgate.workers.image', topic: 'tollgate.image', lagThreshold: '4', offsetResetPolicy: 'earliest' }
    t.same(lag, { type: 'kafka', metricType: 'AverageValue', metadata, authenticationRef: { name: 'kafka' } })
    t.same([running?.type, running?.metadata.threshold], ['prometheus', '0.75'])
    const { advanced, cooldownPeriod } = found(await objects('everything'), 'ScaledObject/tollgate-worker-pictures').spec
    t.same([advanced.horizontalPodAutoscalerConfig.behavior.scaleDown, cooldownPeriod], [{ stabilizationWindowSeconds: 300 }, undefined])
    const of = '{namespace="gate",pod=~"tollgate-worker-pictures-[^-]+(-[^-]{5})?"}'
    t.equal(running?.metadata.query, `sum(tollgate_task_slots_busy${of}) / avg(tollgate_task_slots${of}) or vector(0)`)
    const unnamed = ['--set-json', 'workerPools=[{"name":"any"}]']
    const topics = triggers(await objects('everything', unnamed), 'any').filter(({ type }) => type === 'kafka').map((trigger) => trigger.metadata.topic)
    t.same(topics, [...KINDS, ...OPERATIONS].map((kind) => `tollgate.${kind}`))
  })

  t.test("KEDA's query finds the pods of a pool by the names that Kubernetes makes of its name, and those of no other pool", async (t) => {
    // As the controllers of Deployments and ReplicaSets, and the API server, name a pod.
    const podOf = (deployment: string) => `${`${deployment}-5d4f8c7b69-`.slice(0, 58)}x7k2p`
    const pools = ['a', 'ab', 'a-b', 'pictures-2', 'pictures-fi', 'films-and-musik']
    for (const fullname of ['gate', 'g'.repeat(35), 'g'.repeat(40)]) {
      const all = await objects('everything', ['--set', `fullnameOverride=${fullname}`, '--set-json', `workerPools=${JSON.stringify(pools.map((name) => ({ name })))}`])
      for (const pool of pools) {
        const [, pattern = ''] = /avg\(.*pod=~"(.+)"/.exec(found(all, `ScaledObject/${fullname}-worker-${pool}`).spec.triggers.at(-1).metadata.query) ?? []
        t.same(pools.filter((one) => new RegExp(`^(?:${pattern})$`).test(podOf(`${fullname}-worker-${one}`))), [pool], `${fullname}-worker-${pool}`)
      }
    }
  })

  t.test('a release may have a number for its name', async (t) => {
    const all = parsed(await helm(['template', '123', CHART, ...valuesOf('everything')]))
    const labels = all.flatMap(({ metadata, spec }) => [metadata.labels, spec?.selector?.matchLabels ?? spec?.selector, spec?.template?.metadata.labels]).map((some) => some?.['app.kubernetes.io/instance'])
    t.same([...new Set(labels.filter((label) => label !== undefined))], ['123'])
  })

  t.test('the CRDs outlive the release unless that is refused', async (t) => {
    const kept = async (name: string) => (await objects(name)).filter(({ kind }) => kind === 'CustomResourceDefinition').map(({ metadata }) => metadata.annotations?.['helm.sh/resource-policy'])
    t.same([await kept('required'), await kept('bare'), await kept('namespaced')], [['keep', 'keep'], [undefined, undefined], []])
  })

  t.test('the notes of a release that owns the CRDs name the keys to delete before it is removed', async (t) => {
    const told = (name: string) => helm(['install', 'tollgate', CHART, '--namespace', 'gate', '--dry-run=client', ...valuesOf(name)])
    t.match(await told('bare'), 'kubectl delete apikeys --all --all-namespaces')
    t.notMatch(await told('required'), 'kubectl delete apikeys')
  })

  t.test('objects of other projects are made only where the cluster knows them, and the notes tell which were not', async (t) => {
    const args = ['install', 'tollgate', CHART, '--namespace', 'gate', '--dry-run=client', ...['required', 'everything'].flatMap((file) => ['--values', join(import.meta.dirname, 'values', `${file}.yaml`)])]
    const text = await helm(args)
    t.notMatch(text, /^kind: (ScaledObject|ServiceMonitor|PrometheusRule|HTTPRoute|MutatingAdmissionPolicy)$/m)
    for (const kind of ['ScaledObject tollgate-worker-pictures', 'ServiceMonitor', 'PrometheusRule', 'HTTPRoute', 'MutatingAdmissionPolicy']) t.match(text, `NOT CREATED: the ${kind}, because the cluster does not have`)
    t.match(text, 'helm test tollgate --namespace gate')
  })
}
