/** The chart on a real API server: what it makes is accepted, and a release is installed, upgraded, rolled back and removed. */
import { execFile } from 'node:child_process'
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { parsePlanLimits, planVerdict } from '../../src/domain/plan-limits-by-namespace.ts'
import { grantedBy } from '../../src/domain/reconcile/reconcile-plan.ts'
import { FINALIZER } from '../../src/backends/resources/kubernetes/finalizer.ts'
import type { PlanResource } from '../../src/backends/resources/resources.ts'
import { openValidator } from '../../src/backends/resources/manifest-validation.ts'
import { eventually } from '../flows/eventually.ts'
import { commandsOf } from '../page-blocks.ts'
import { apiKey, codingPlan, mediaPlan } from '../backends/resources/manifests.ts'
import { installed, missing } from '../servers/client.ts'
import { makeNamespace, openApi, pathOf, type Answered, type Api } from '../servers/kube/api.ts'
import { kubectl, ownKubernetes } from '../servers/kubernetes.ts'
import { CASES, CHART, found, helm, HELMS, NAMESPACE, objects, rendered, valuesOf, type Helm } from './chart.ts'
import { startController } from './controller.ts'

const run = promisify(execFile)
const CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
const LEASE = `/apis/coordination.k8s.io/v1/namespaces/${NAMESPACE}/leases/tollgate-controller`
/**
 * The chart as it once was, never to be made anew: what upgrades from it will always upgrade from what people had. It is `helm package --version 0.1.0-2941a3d` of charts/tollgate in
 * the commit 2941a3d of 2026-11-21, "Keep records in MongoDB: … the chart's first templates", the first that has all of it. Its CRDs have no default status, and it has no Lease.
 */
const OLDER = join(import.meta.dirname, 'older/tollgate-0.1.0-2941a3d.tgz')
const DEPLOYMENTS = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments`

if (!missing(t, ['helm', 'kubeconform', 'chart-crds'])) {
  const cluster = await ownKubernetes(t)
  if (cluster !== null) {
    const api = await openApi(cluster.kubeconfig)
    t.teardown(() => api.close())
    const installCommand = (name: string, ...more: string[]) => helm(['install', 'tollgate', CHART, '--namespace', NAMESPACE, ...valuesOf(name), ...more], cluster.kubeconfig)
    for (const name of [NAMESPACE, 'acme', 'globex', 'team-a', 'nobody']) await makeNamespace(api, name)
    const bind = (user: string, role: string) =>
      api.apply(`/apis/rbac.authorization.k8s.io/v1/namespaces/acme/rolebindings/${user}`, {
        apiVersion: 'rbac.authorization.k8s.io/v1',
        kind: 'RoleBinding',
        metadata: { name: user },
        roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: role },
        subjects: [{ apiGroup: 'rbac.authorization.k8s.io', kind: 'User', name: user }],
      })
    const may = async (user: string, verb: string, resource: string, namespace = 'acme', name?: string) => {
      const group = resource === 'secrets' ? '' : resource === 'leases' ? 'coordination.k8s.io' : 'tollgate.dev'
      const [of, subresource] = resource.split('/')
      const spec = { user, resourceAttributes: { verb, resource: of, subresource, group, namespace, name } }
      const { body } = await api.request('POST', '/apis/authorization.k8s.io/v1/subjectaccessreviews', { apiVersion: 'authorization.k8s.io/v1', kind: 'SubjectAccessReview', spec })
      return body.status.allowed as boolean
    }
    /** Runs commands of a page. */
    const sh = (commands = '', which: Helm = 'helm') => {
      const PATH = [dirname(kubectl()), dirname(installed(which)), process.env['PATH']].join(':')
      return run('sh', ['-ec', commands.replaceAll('--namespace tollgate', `--namespace ${NAMESPACE}`)], { env: { ...process.env, PATH, KUBECONFIG: cluster.kubeconfig } })
    }

    t.test('it looks into the Secrets and ConfigMaps that are there, and refuses what no pod starts with, what pods cannot share and what nobody sells', async (t) => {
      const made = async (kind: 'Secret' | 'ConfigMap', name: string, entries: object) => {
        const { status, body } = await api.apply(`/api/v1/namespaces/${NAMESPACE}/${kind.toLowerCase()}s/${name}`, { apiVersion: 'v1', kind, metadata: { name }, ...entries })
        if (status >= 300) throw new Error(body.message)
      }
      const secret = (name: string, key: string, entry: string) => made('Secret', name, { data: { [key]: Buffer.from(entry).toString('base64') } })
      const sealing = (entry: string) => secret('tollgate-sealing', 'sealing.key', entry)
      const engines = (entries: object) => made('ConfigMap', 'engines', entries)
      const key = Buffer.alloc(32, 7).toString('base64')
      const fake = 'engines: [{ name: draw, type: preview }]'
      const echo = 'upstreams: [{ name: real, baseUrl: "https://models" }, { name: words, baseUrl: "echo:" }]'
      const refusals: [() => Promise<void>, RegExp][] = [
        [() => secret('tollgate-store', 'url', 'sqlite:/data/tollgate.db'), /The entry url of the Secret tollgate-store does not begin with any of mongodb:\/\/, mongodb\+srv:\/\/: pods cannot share another kind of address\./],
        [() => secret('tollgate-sealing', 'key', key), /sealingKey\.existingSecret names the Secret tollgate-sealing, which has no entry sealing\.key\./],
        ...['secret', Buffer.alloc(31).toString('base64'), Buffer.alloc(33).toString('base64'), `${key}\nsecret`].map((entry): [() => Promise<void>, RegExp] => [
          () => sealing(entry),
          /The entry sealing\.key of the Secret tollgate-sealing has a line that is not 32 bytes in base64/,
        ]),
        [() => engines({ data: { 'mine.yaml': fake } }), /engines\.existingConfigMap names the ConfigMap engines, which has no entry engines\.yaml\./],
        [() => engines({ data: { 'engines.yaml': fake } }), /The entry engines\.yaml of the ConfigMap engines names draw, the preview engine, which draws placeholders; allowFakes: true permits it/],
        [() => engines({ binaryData: { 'engines.yaml': Buffer.from(fake).toString('base64') } }), /The entry engines\.yaml of the ConfigMap engines names draw, the preview engine/],
        [() => engines({ data: { 'engines.yaml': `${fake}]` } }), /The entry engines\.yaml of the ConfigMap engines is not YAML: /],
        [() => secret('upstream-keys', 'other', 'key'), /upstreams\.keysSecret names the Secret upstream-keys, which has no entry main\./],
        [() => secret('upstream-keys', 'main', '\n'), /upstreams\.keysSecret names the Secret upstream-keys, which has no entry main\./],
        [() => secret('api-tls', 'tls.crt', 'certificate'), /ingress\.tlsSecret names the Secret api-tls, which has no entry tls\.key\./],
        [() => made('ConfigMap', 'authorities', { data: { 'ca.pem': 'certificate' } }), /caBundle\.existingConfigMap names the ConfigMap authorities, which has no entry ca\.crt\./],
        [() => made('ConfigMap', 'models', { data: { 'upstreams.yaml': echo } }), /The entry upstreams\.yaml of the ConfigMap models names words, the built-in echo, which answers without a model/],
      ]
      const mended = async () => {
        await secret('tollgate-store', 'url', 'mongodb://mongodb')
        await sealing(`${key}\r\n\n${Buffer.alloc(32, 255).toString('base64url')}\n`)
        await engines({ data: { 'engines.yaml': fake.replace('preview', 'preview-of-ours') } })
        await made('ConfigMap', 'models', { data: { 'upstreams.yaml': 'upstreams: [{ name: main, baseUrl: "https://models", apiKeyFile: main }, { name: second, baseUrl: "https://models", apiKeyFile: /keys/second }]' } })
        await secret('upstream-keys', 'main', 'key')
        await made('Secret', 'api-tls', { data: { 'tls.crt': 'Yw==', 'tls.key': 'aw==' } })
        await made('ConfigMap', 'authorities', { binaryData: { 'ca.crt': 'Yw==' } })
      }
      const models = ['--set-json', 'upstreams={"file":null,"existingConfigMap":"models","keysSecret":"upstream-keys"}', '--set', 'networkPolicy.ingressFrom[0].namespaceSelector.matchLabels.app=ingress,caBundle.existingConfigMap=authorities,ingress.enabled=true,ingress.tlsSecret=api-tls']
      for (const [make, message] of refusals) {
        await mended()
        await make()
        await t.rejects(installCommand('required', '--dry-run=server', ...models), { message })
      }
      await t.resolves(installCommand('required', '--dry-run=server', ...models, '--set', 'allowFakes=true'), 'fakes are installed where that is asked for')
      await mended()
      await t.resolves(installCommand('required', '--dry-run=server', ...models))
      await sh(commandsOf('docs/chart-upgrades.md', 'Rotate the sealing key')[0])
      const { data } = (await api.request('GET', `/api/v1/namespaces/${NAMESPACE}/secrets/tollgate-sealing`)).body
      const [first, ...others] = Buffer.from(data['sealing.key'], 'base64').toString().split('\n').filter((line) => line.trim() !== '')
      t.equal(Buffer.from(first ?? '', 'base64').length, 32)
      t.equal(others[0]?.trim(), key, 'the line of before is the second')
      await t.resolves(installCommand('required', '--dry-run=server', ...models), 'what the commands for another sealing key wrote is one')
      for (const name of ['engines', 'models']) await api.request('DELETE', `/api/v1/namespaces/${NAMESPACE}/configmaps/${name}`)
    })

    for (const which of HELMS) {
      t.test(`a release is installed by ${which}, upgraded from an older one, rolled back and removed; CRDs, Plans, keys and Secrets stay`, async (t) => {
        if (missing(t, [which])) return
        const helmed = (verb: string, ...args: string[]) => helm([verb, 'tollgate', ...args, '--namespace', NAMESPACE], cluster.kubeconfig, which)
        const statusOf = async () => (await api.request('GET', `${CRDS}/apikeys.tollgate.dev`)).body.spec.versions[0].schema.openAPIV3Schema.properties.status.default
        const lease = async () => (await api.request('GET', LEASE)).body.metadata?.annotations
        await helmed('install', OLDER, ...valuesOf('required'))
        t.same([await statusOf(), await lease()], [undefined, undefined])
        await eventually('the API to take Plans', async () => ((await api.request('GET', '/apis/tollgate.dev/v1alpha1/plans')).status === 200 ? true : null))
        for (const resource of [codingPlan('coder'), apiKey('ci', 'coder')] as Answered[]) {
          const { status, body } = await api.apply(pathOf({ kind: resource.kind, namespace: 'acme', name: resource.metadata.name }), { ...resource, metadata: { name: resource.metadata.name, namespace: 'acme' } })
          t.equal(status, 201, body.message)
        }
        const key = await uidOf(api, pathOf({ kind: 'ApiKey', namespace: 'acme', name: 'ci' }))
        const sealing = (await api.request('GET', `/api/v1/namespaces/${NAMESPACE}/secrets/tollgate-sealing`)).body
        const gateway = await uidOf(api, `${DEPLOYMENTS}/tollgate-gateway`)
        // The controllers of that release made theirs by themselves, as one does whose Lease somebody deleted.
        await api.apply(LEASE, { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: { name: 'tollgate-controller' }, spec: { holderIdentity: 'one' } })

        await helmed('upgrade', CHART, ...valuesOf('required'))
        t.same(await statusOf(), { observedGeneration: -1 }, 'the upgrade upgrades the CRDs')
        t.equal(await uidOf(api, `${DEPLOYMENTS}/tollgate-gateway`), gateway, 'Deployments are the same, so that pods roll')
        t.equal(await lease(), undefined, 'what is there already is left alone')
        await api.request('DELETE', LEASE)
        for (const nth of ['first', 'second']) {
          await helmed('upgrade', CHART, ...valuesOf('required'))
          t.match(await lease(), { 'meta.helm.sh/release-name': 'tollgate' }, `without it the ${nth} upgrade makes or keeps one that goes with the release`)
        }

        await helmed('rollback', '1')
        t.same([await statusOf(), await lease()], [undefined, undefined])
        t.equal(await uidOf(api, pathOf({ kind: 'ApiKey', namespace: 'acme', name: 'ci' })), key)
        await helmed('upgrade', CHART, ...valuesOf('required'))

        await helmed('uninstall')
        await eventually('nothing of the release to be left', async () => ((await labelled(api, 'tollgate')).every((name) => name.startsWith('customresourcedefinitions/')) ? true : null))
        t.equal(await uidOf(api, pathOf({ kind: 'ApiKey', namespace: 'acme', name: 'ci' })), key)
        const { body } = await api.request('GET', `/api/v1/namespaces/${NAMESPACE}/secrets/tollgate-sealing`)
        t.same([body.metadata.uid, body.data], [sealing.metadata.uid, sealing.data])

        await helmed('install', CHART, ...valuesOf('required'))
        t.equal(await uidOf(api, pathOf({ kind: 'ApiKey', namespace: 'acme', name: 'ci' })), key, 'a release of the same name takes the CRDs over')
        // What Helm 3 has begun, Helm 4 goes on with.
        await helm(['upgrade', 'tollgate', CHART, '--namespace', NAMESPACE, ...valuesOf('required'), '--set', 'crds.keep=false'], cluster.kubeconfig)
        await helm(['uninstall', 'tollgate', '--namespace', NAMESPACE], cluster.kubeconfig)
        await eventually('the CRDs to go where keeping them was refused', async () => {
          const answers = await Promise.all(['plans', 'apikeys'].map((plural) => api.request('GET', `${CRDS}/${plural}.tollgate.dev`)))
          return answers.every(({ status }) => status === 404) ? true : null
        })
      })
    }

    for (const which of HELMS) {
      t.test(`the command of docs/chart-upgrades.md upgrades workers first by ${which}, and no later upgrade or rollback conflicts, also after a scale there and back`, async (t) => {
        if (missing(t, [which])) return
        const helmed = (verb: string, ...args: string[]) => helm([verb, 'tollgate', ...args, '--namespace', NAMESPACE], cluster.kubeconfig, which)
        const images = async () => Object.fromEntries((await api.request('GET', DEPLOYMENTS)).body.items.map(({ metadata, spec }: Answered) => [metadata.name.replace('tollgate-', ''), spec.template.spec.containers[0].image.split(/[:@]/)[1]]))
        const scale = (replicas: number) => sh(`kubectl --namespace tollgate scale deployment --selector app.kubernetes.io/component=gateway --replicas=${replicas}`)
        await helmed('install', CHART, ...valuesOf('required'), '--set', 'image.tag=0.1.9')
        await sh((commandsOf('docs/chart-upgrades.md', 'Stop and upgrade')[2] ?? '').replace('charts/tollgate', CHART).replace('<new version>', '0.2.0'), which)
        t.same(await images(), { controller: '0.1.9', dispatcher: '0.1.9', gateway: '0.1.9', 'worker-all': '0.2.0' })
        await helmed('upgrade', CHART, ...valuesOf('required'), '--set', 'image.tag=0.2.0')
        t.same(await images(), { controller: '0.2.0', dispatcher: '0.2.0', gateway: '0.2.0', 'worker-all': '0.2.0' })
        await helmed('rollback')
        t.same(await images(), { controller: '0.1.9', dispatcher: '0.1.9', gateway: '0.1.9', 'worker-all': '0.2.0' }, 'a rollback undoes one upgrade')
        await scale(0)
        await scale(2)
        await helmed('upgrade', CHART, ...valuesOf('required'), '--set', 'image.tag=0.2.1')
        if (which === 'helm') {
          await scale(3)
          await scale(2)
          const more = [...valuesOf('required'), '--set', 'image.tag=0.2.2,gateway.replicas=4']
          await t.rejects(helmed('upgrade', CHART, ...more), { message: /conflict with "kubectl" with subresource "scale"/ })
          t.match(await images(), { gateway: '0.2.1', 'worker-all': '0.2.2' })
          await helmed('upgrade', CHART, ...more, '--force-conflicts')
        }
        await helmed('rollback', '1')
        t.same(await images(), { controller: '0.1.9', dispatcher: '0.1.9', gateway: '0.1.9', 'worker-all': '0.1.9' })
        await helmed('uninstall')
        await eventually('nothing of the release to be left', async () => ((await labelled(api, 'tollgate')).every((name) => name.startsWith('customresourcedefinitions/')) ? true : null))
      })
    }

    t.test('uninstalled by the commands of docs/chart-upgrades.md, a release leaves no key, no Secret and no CRD where that is wanted, and what was uninstalled without them is let go', async (t) => {
      const [ending, letGo] = commandsOf('docs/chart-upgrades.md', 'Uninstall')
      const key = pathOf({ kind: 'ApiKey', namespace: 'leaving', name: 'ci' })
      const secret = '/api/v1/namespaces/leaving/secrets/ci-key'
      const answers = (...paths: string[]) => Promise.all(paths.map(async (path) => (await api.request('GET', path)).status))
      const crds = ['plans', 'apikeys'].map((plural) => `${CRDS}/${plural}.tollgate.dev`)
      const gone = (what: string, ...paths: string[]) => eventually(what, async () => ((await answers(...paths)).every((status) => status === 404) ? true : null))
      const declare = async (metadata: object = {}) => {
        await eventually('the API to take ApiKeys', async () => ((await answers(pathOf({ kind: 'ApiKey', namespace: 'leaving' })))[0] === 200 ? true : null))
        await api.apply(pathOf({ kind: 'Plan', namespace: 'leaving', name: 'coder' }), { ...codingPlan('coder'), metadata: { name: 'coder' } })
        const { status, body } = await api.apply(key, { ...apiKey('ci', 'coder', { secretName: 'ci-key' }), metadata: { name: 'ci', ...metadata } })
        t.equal(status, 201, body.message)
      }

      await makeNamespace(api, 'leaving')
      await installCommand('required', '--set', 'crds.keep=false')
      await declare()
      const controller = await startController(t, `kubernetes:?kubeconfig=${cluster.kubeconfig}&leaseNamespace=${NAMESPACE}`)
      await eventually('the key to be in its Secret', async () => ((await answers(secret))[0] === 200 ? true : null))
      t.same((await api.request('GET', key)).body.metadata.finalizers, [FINALIZER])
      await sh(ending)
      await gone('CRDs and Secret to go', ...crds, secret)
      await controller.close()

      await installCommand('required', '--set', 'crds.keep=false')
      await declare({ finalizers: [FINALIZER] })
      await helm(['uninstall', 'tollgate', '--namespace', NAMESPACE], cluster.kubeconfig)
      await api.request('DELETE', '/api/v1/namespaces/leaving')
      await eventually('CRD and namespace to wait for a controller', async () => {
        const { conditions } = (await api.request('GET', '/api/v1/namespaces/leaving')).body.status
        const isWaiting = conditions?.some(({ type, status }: Answered) => type === 'NamespaceFinalizersRemaining' && status === 'True')
        return isWaiting && (await api.request('GET', `${CRDS}/apikeys.tollgate.dev`)).body.metadata.deletionTimestamp ? true : null
      })
      await sh(letGo)
      await gone('CRDs and namespace to go', ...crds, '/api/v1/namespaces/leaving')
    })

    t.test('tenants edit ApiKeys and read Plans, and write no Plan unless that is given', async (t) => {
      await installCommand('required')
      t.equal((await bind('buyer', 'edit')).status, 201)
      await eventually('the roles to be taken in', async () => ((await may('buyer', 'create', 'apikeys')) && (await may('buyer', 'get', 'plans')) ? true : null))
      const allowed: string[] = []
      for (const resource of ['plans', 'apikeys', 'plans/status', 'apikeys/status']) {
        for (const verb of ['get', 'list', 'watch', 'create', 'update', 'patch', 'delete', 'deletecollection']) if (await may('buyer', verb, resource)) allowed.push(`${verb} ${resource}`)
      }
      const read = ['get', 'list', 'watch']
      const all = [...read, 'create', 'update', 'patch', 'delete', 'deletecollection']
      t.same(allowed, [...read.map((verb) => `${verb} plans`), ...all.map((verb) => `${verb} apikeys`)])
      await helm(['uninstall', 'tollgate', '--namespace', NAMESPACE], cluster.kubeconfig)
    })

    t.test('gateways that somebody else scales keep their number: as autoscaling is switched on, at upgrades, and when one is rolled back', async (t) => {
      const helmed = (verb: string, ...args: string[]) => helm([verb, 'tollgate', ...args, '--namespace', NAMESPACE], cluster.kubeconfig)
      const autoscaled = [...valuesOf('required'), '--set', 'gateway.autoscaling.enabled=true']
      const scale = (replicas: number) => run(kubectl(), ['--kubeconfig', cluster.kubeconfig, '--namespace', NAMESPACE, 'scale', 'deployment', 'tollgate-gateway', `--replicas=${replicas}`])
      const replicas = async () => (await api.request('GET', `${DEPLOYMENTS}/tollgate-gateway`)).body.spec.replicas
      await installCommand('required')
      t.equal(await replicas(), 2)
      await helmed('upgrade', CHART, ...autoscaled)
      t.equal(await replicas(), 2)
      await helmed('upgrade', CHART, ...autoscaled)
      t.equal(await replicas(), 2)
      // As the HorizontalPodAutoscaler does, through the same backend.
      await scale(5)
      await helmed('upgrade', CHART, ...autoscaled)
      t.equal(await replicas(), 5)
      await scale(7)
      await helmed('upgrade', CHART, ...autoscaled)
      await helmed('rollback', '4')
      t.equal(await replicas(), 7)
      await helmed('uninstall')
      if (missing(t, ['helm3'])) return
      await helm(['install', 'tollgate', CHART, '--namespace', NAMESPACE, ...valuesOf('required')], cluster.kubeconfig, 'helm3')
      await scale(5)
      await helmed('upgrade', CHART, ...autoscaled)
      t.equal(await replicas(), 5, 'also where Helm 4 goes on with what Helm 3 has begun')
      await helmed('uninstall')
    })

    t.test('the admission policies refuse the very Plans that the controller would not serve, with its sentences', async (t) => {
      await installCommand('everything', '--set', 'ingress.enabled=false')
      const limits = parsePlanLimits('plan-limits.yaml', found(await objects('everything'), 'ConfigMap/tollgate-plan-limits').data['plan-limits.yaml'])
      const validator = await openValidator()
      const outcomeOf = async (document: Answered, namespace: string) => {
        const { name } = document.metadata
        const body = { ...document, metadata: { name, namespace } }
        const path = `${pathOf({ kind: 'Plan', namespace })}?dryRun=All`
        const { status, body: said } = await api.request('POST', path, body)
        return { status, message: String(said.message) }
      }
      await eventually('the policies to be in force', async () => ((await outcomeOf(codingPlan('first'), 'nobody')).status === 201 ? null : true))
      for (const [namespace, document] of PLANS) {
        const judged = validator.validate({ ...document, metadata: { name: 'studio', namespace } }, () => null)
        if (judged.outcome !== 'accepted') throw new Error(judged.faults.map(({ sentence }) => sentence).join())
        const verdict = planVerdict(limits, { namespace, name: 'studio' }, grantedBy({ metadata: {}, spec: judged.manifest.spec } as PlanResource, null), () => null)
        const { status, message } = await outcomeOf(document, namespace)
        t.equal(status, verdict === null ? 201 : 403, `${namespace}: ${JSON.stringify(document['spec'])}: ${verdict ?? 'allowed'}; ${message}`)
        // The server tells the first fault.
        if (verdict !== null) t.ok(verdict.replace(/^.*?: |\.$/g, '').split('; ').some((fault) => message.includes(fault.replace(/(\.\d*?)0+$/, '$1'))), `${verdict} ${message}`)
      }
    })

    t.test('an ApiKey has the finalizer as soon as it is made, also beside those of others, and no later apply takes it off', async (t) => {
      const apply = async (name: string, metadata: object) => {
        const { status, body } = await api.apply(pathOf({ kind: 'ApiKey', namespace: 'acme', name }), { ...apiKey(name, 'coder'), metadata: { name, ...metadata } })
        return { status, finalizers: body.metadata?.finalizers }
      }
      const remove = async (name: string) => {
        const path = pathOf({ kind: 'ApiKey', namespace: 'acme', name })
        await api.request('PATCH', path, { metadata: { finalizers: null } }, 'application/merge-patch+json')
        await api.request('DELETE', path)
      }
      // Each policy comes into force at a time of its own, and this one answers 503 until the API server has a schema for it.
      await eventually('the policy of finalizers to be in force', async () => {
        const { finalizers } = await apply('early', {})
        await remove('early')
        return finalizers ? true : null
      })
      t.same(await apply('mass', {}), { status: 201, finalizers: [FINALIZER] })
      t.same(await apply('mass', { labels: { seen: 'yes' } }), { status: 200, finalizers: [FINALIZER] })
      t.same(await apply('mass', {}), { status: 200, finalizers: [FINALIZER] })
      const both = ['example.com/mine', FINALIZER]
      t.same(await apply('beside', { finalizers: ['example.com/mine'] }), { status: 201, finalizers: both })
      t.same(await apply('beside', { finalizers: ['example.com/mine'], labels: { seen: 'yes' } }), { status: 200, finalizers: both })
      for (const name of ['mass', 'beside']) await remove(name)
    })

    t.test('what was above the limits before can be suspended, labelled and removed, and is refused when it is edited', async (t) => {
      const path = pathOf({ kind: 'Plan', namespace: 'nobody', name: 'before' })
      const patch = (body: object) => api.request('PATCH', path, body, 'application/merge-patch+json')
      const suspended = codingPlan('before', { state: 'Suspended' }) as Answered
      t.equal((await api.apply(path, { ...suspended, metadata: { name: 'before', namespace: 'nobody' } })).status, 201)
      t.equal((await patch({ metadata: { labels: { seen: 'yes' } } })).status, 200)
      t.equal((await patch({ spec: { state: 'Active' } })).status, 403)
      t.equal((await api.request('DELETE', path)).status, 200)
    })

    t.test('tenants edit ApiKeys and, because that is given, Plans; viewers see; no account of ours but the controller may read a Secret', async (t) => {
      for (const [user, role] of [['tenant', 'edit'], ['viewer', 'view'], ['seller', 'tollgate-plan-admin']] as const) t.equal((await bind(user, role)).status, 201)
      // Kubernetes takes in each role and each binding at a moment of its own.
      const given = [['tenant', 'create', 'apikeys'], ['tenant', 'create', 'plans'], ['viewer', 'list', 'plans'], ['seller', 'patch', 'plans']] as const
      await eventually('the roles to be taken in', async () => ((await Promise.all(given.map(([user, verb, resource]) => may(user, verb, resource)))).every(Boolean) ? true : null))
      t.same([await may('tenant', 'create', 'plans'), await may('tenant', 'get', 'plans'), await may('tenant', 'create', 'apikeys', 'globex')], [true, true, false])
      t.same([await may('viewer', 'watch', 'apikeys'), await may('viewer', 'create', 'apikeys'), await may('viewer', 'get', 'secrets')], [true, false, false])
      t.same([await may('seller', 'patch', 'plans'), await may('seller', 'get', 'apikeys'), await may('seller', 'create', 'apikeys')], [true, true, false])
      for (const role of ['gateway', 'worker', 'dispatcher', 'controller']) {
        const account = `system:serviceaccount:${NAMESPACE}:tollgate-${role}`
        for (const verb of ['get', 'list', 'watch', 'create', 'update', 'delete']) {
          for (const namespace of [NAMESPACE, 'acme', 'kube-system']) t.equal(await may(account, verb, 'secrets', namespace), role === 'controller', `${role} ${verb} in ${namespace}`)
        }
        t.equal(await may(account, 'patch', 'secrets'), false, role)
        t.equal(await may(account, 'list', 'plans'), role === 'controller', role)
        t.equal(await may(account, 'update', 'leases', NAMESPACE, 'tollgate-controller'), role === 'controller', role)
        t.same([await may(account, 'update', 'leases', NAMESPACE, 'another'), await may(account, 'create', 'leases', 'acme')], [false, false], role)
      }
      await helm(['uninstall', 'tollgate', '--namespace', NAMESPACE], cluster.kubeconfig)
    })

    t.test('what it makes has the shape that the API server publishes, and is accepted by it', async (t) => {
      const own = await objects('required')
      for (const crd of own.filter(({ kind }) => kind === 'CustomResourceDefinition')) await api.apply(`${CRDS}/${crd.metadata.name}`, crd)
      const folder = dirname(installed('chart-crds'))
      for (const file of readdirSync(folder).filter((name) => name.endsWith('.yaml'))) {
        await run(kubectl(), ['--kubeconfig', cluster.kubeconfig, 'apply', '--server-side', '--filename', join(folder, file)])
      }
      const schemas = join(t.testdir({}), 'schemas')
      mkdirSync(schemas)
      await eventually('the API server to publish all kinds', async () => {
        const { body } = await api.request('GET', '/openapi/v2')
        writeFileSync(join(schemas, 'swagger.json'), JSON.stringify(body))
        return ['ScaledObject', 'ServiceMonitor', 'PodMonitor', 'PrometheusRule', 'HTTPRoute', 'ApiKey'].every((kind) => Object.keys(body.definitions).some((name) => name.endsWith(`.${kind}`))) ? true : null
      })
      await run(process.execPath, [join(import.meta.dirname, '../servers/kube/gen-schemas.mjs'), join(schemas, 'swagger.json'), schemas])
      for (const name of CASES) {
        const file = join(schemas, `${name}.yaml`)
        writeFileSync(file, await rendered(name))
        const location = join(schemas, '{{.ResourceKind}}{{.KindSuffix}}.json')
        const { stdout } = await run(installed('kubeconform'), ['-strict', '-summary', '-output', 'json', '-schema-location', location, file])
        const { summary } = JSON.parse(stdout)
        t.match(summary, { invalid: 0, errors: 0, skipped: 0 }, `${name}: ${stdout}`)
        t.equal(summary.valid, (await objects(name)).length)
        await t.resolves(run(kubectl(), ['--kubeconfig', cluster.kubeconfig, 'apply', '--server-side', '--dry-run=server', '--validate=strict', '--force-conflicts', '--filename', file]), name)
      }
    })

    t.test('the commands of docs/releases.md move stored objects to the next version of the group, so that CRDs without the former one are accepted', async (t) => {
      const versions = (crd: Answered, ...states: [name: string, state: object][]) => ({ ...crd, spec: { ...crd.spec, versions: states.map(([name, state]) => ({ ...crd.spec.versions[0], name, ...state })) } })
      const crds = (await objects('required')).filter(({ kind }) => kind === 'CustomResourceDefinition')
      const apply = (...states: [name: string, state: object][]) => Promise.all(crds.map(async (crd) => (await api.apply(`${CRDS}/${crd.metadata.name}`, versions(crd, ...states))).status))
      const former: [string, object] = ['v1alpha1', { served: true, storage: false, deprecated: true }]
      const next: [string, object] = ['v1beta1', { served: true, storage: true }]
      const stored = async () => (await Promise.all(crds.map(({ metadata }) => api.request('GET', `${CRDS}/${metadata.name}`)))).map(({ body }) => body.status.storedVersions)
      const path = pathOf({ kind: 'Plan', namespace: 'acme', name: 'moved' })
      await apply(['v1alpha1', {}])
      const { body: before } = await eventually('the API to take Plans', async () => {
        const answer = await api.apply(path, { ...codingPlan('moved'), metadata: { name: 'moved' } })
        return answer.status < 300 ? answer : null
      })

      t.same(await apply(former, next), [200, 200])
      t.same(await apply(next), [422, 422], 'a version that may be stored cannot be dropped')
      await eventually('the API to serve the next version', async () => ((await api.request('GET', path.replace('v1alpha1', 'v1beta1'))).status === 200 ? true : null))
      await sh(commandsOf('docs/releases.md', 'Plan and ApiKey')[0])
      t.same(await stored(), [['v1beta1'], ['v1beta1']])
      t.same(await apply(next), [200, 200])
      await eventually('the API to drop the former version', async () => ((await api.request('GET', path)).status === 404 ? true : null))
      const { body: after } = await api.request('GET', path.replace('v1alpha1', 'v1beta1'))
      t.same([after.metadata.uid, after.metadata.generation, after.spec], [before.metadata.uid, before.metadata.generation, before.spec])
    })
  }
}

/** Against the limits of `values/everything.yaml`, apart from `priceFloor`, which the controller alone knows. */
const PLANS: [string, Answered][] = [
  ['acme', mediaPlan('studio', { requestsPerMinute: 600 })],
  ['acme', mediaPlan('studio', { requestsPerMinute: 601 })],
  ['acme', mediaPlan('studio', { keyPolicy: { maxKeys: 5 } })],
  ['acme', mediaPlan('studio', { keyPolicy: { maxKeys: 6 } })],
  ['acme', mediaPlan('studio', { product: 'Room' })],
  ...['500.5', '500.500000', '500.500001', '500.49', '1000000000', '0'].map((allowance): [string, Answered] => ['acme', mediaPlan('studio', {}, { allowance, maxQueuedTasks: 100 })]),
  ...[{ periodDays: 29 }, { periodDays: 30 }, { periodMonths: 1 }, { periodMonths: 2 }, {}].map((period): [string, Answered] => ['team-a', mediaPlan('studio', {}, { ...period, maxQueuedTasks: 100 })]),
  ['acme', mediaPlan('studio', {}, { maxConcurrentTasks: 4, maxQueuedTasks: 100 })],
  ['acme', mediaPlan('studio', {}, { maxConcurrentTasks: 5, maxQueuedTasks: 100 })],
  ['acme', mediaPlan('studio', {}, { maxQueuedTasks: 101 })],
  ['team-a', codingPlan('coder')],
  ...[{ sessionWindow: { tokens: 500_001 } }, { sessionWindow: { tokens: 1, durationSeconds: 3_600 } }, { sessionWindow: { tokens: 1, durationSeconds: 3_599 } }, { weeklyWindow: { tokens: 1_000_000_000_000 } }, { maxConcurrentRequests: 33 }, { weights: { input: 249 } }, { weights: { cachedInput: 250 } }, { weights: { output: 0 } }].map(
    (terms): [string, Answered] => ['team-a', codingPlan('coder', {}, terms)],
  ),
  ['globex', codingPlan('coder')],
  ['nobody', mediaPlan('studio')],
]

async function uidOf({ request }: Api, path: string): Promise<string> {
  const { status, body } = await request('GET', path)
  if (status !== 200) throw new Error(`${path} was answered ${status}`)
  return body.metadata.uid
}

/** What bears the label of a release, of all kinds that there are. */
async function labelled({ request }: Api, release: string): Promise<string[]> {
  const groups = (await request('GET', '/apis')).body.groups.map(({ preferredVersion }: Answered) => `/apis/${preferredVersion.groupVersion}`)
  const found: string[] = []
  for (const group of ['/api/v1', ...groups]) {
    for (const { name, verbs } of (await request('GET', group)).body.resources ?? []) {
      if (!verbs.includes('list') || name.includes('/')) continue
      const { body } = await request('GET', `${group}/${name}?labelSelector=app.kubernetes.io/instance=${release}`)
      // What goes in the background with its owner is on its way.
      const there = (body.items ?? []).filter(({ metadata }: Answered) => !metadata.deletionTimestamp && !metadata.ownerReferences)
      found.push(...there.map(({ metadata }: Answered) => `${name}/${metadata.name}`))
    }
  }
  return found
}
