/** The CRDs on a real API server: it accepts, refuses and reads the same manifests as the folder's validator. */
import { randomUUID } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import t from 'tap'
import { parse } from 'yaml'
import { openValidator } from '../../../src/backends/resources/manifest-validation.ts'
import { command } from '../../servers/command.ts'
import { installCrds, makeNamespace, openApi, pathOf, type Answered } from '../../servers/kube/api.ts'
import { kubectl, kubernetes } from '../../servers/kubernetes.ts'
import { readBounds } from './schema-bounds.ts'
import { apiKey, codingPlan, mediaPlan, rows, type Row } from './manifests.ts'
import { scalars } from './scalars.ts'

const kubeconfig = await kubernetes(t)
if (kubeconfig !== null) {
  const api = await openApi(kubeconfig)
  await installCrds(api)
  const namespace = `crds-${randomUUID().slice(0, 8)}`
  await makeNamespace(api, namespace)
  t.teardown(async () => {
    await api.request('DELETE', `/api/v1/namespaces/${namespace}`)
    await api.close()
  })
  const here = (document: Answered) => ({ ...document, metadata: { ...document.metadata, namespace } })

  type Reply = { status: number; message: string; causes: { field?: string; message?: string }[] }

  /** The server's response to a dry run; unknown fields are refused, as with kubectl. */
  async function verdictOn({ document, before }: Row): Promise<Reply> {
    const manifest = here(document as Answered)
    const path = pathOf({ kind: manifest.kind, namespace })
    const dryRun = 'dryRun=All&fieldValidation=Strict'
    const replyOf = ({ status, body }: { status: number; body: Answered }): Reply => ({ status, message: body.message ?? '', causes: body.details?.causes ?? [] })
    if (!before) return replyOf(await api.request('POST', `${path}?${dryRun}`, manifest))
    const made = await api.request('POST', path, here(before))
    if (made.status !== 201) throw new Error(`the earlier manifest is refused: ${made.body.message}`)
    const own = `${path}/${made.body.metadata.name}`
    const answer = await api.request('PUT', `${own}?${dryRun}`, { ...manifest, metadata: { ...manifest.metadata, resourceVersion: made.body.metadata.resourceVersion } })
    await api.request('DELETE', own)
    return replyOf(answer)
  }

  t.test('the API server accepts and refuses the same manifests as the folder, with faults at the same place', async (t) => {
    t.ok(rows.length >= 80, `${rows.length} rows`)
    for (const row of rows) {
      const { status, message } = await verdictOn(row)
      if (row.fault === null) t.ok(status === 200 || status === 201, `${row.why}: ${message}`)
      else t.ok((status === 422 || status === 400) && message.includes(placeOf(row.fault)), `${row.why}: ${status} ${message}, wanted ${row.fault}`)
    }
  })

  t.test('the API server reads every bound of the CRDs as the folder does', async (t) => {
    for (const row of [...(await readBounds('Plan')).rows, ...(await readBounds('ApiKey')).rows]) {
      const { status, message, causes } = await verdictOn(row)
      const isOfTheBound = ({ field, message = '' }: Reply['causes'][0]) => field === row.field && message.includes(row.words.server)
      if (row.fault === null) t.equal(status, 201, `${row.why}: ${message}`)
      else t.ok(status === 422 && causes.some(isOfTheBound), `${row.why}: ${status} ${message}, wanted ${row.fault}${row.words.server}`)
    }
  })

  t.test('the API server reads what it accepts as the folder does', async (t) => {
    const { validate } = await openValidator()
    for (const { why, document } of rows.filter(({ fault, before }) => fault === null && !before)) {
      const verdict = validate(document, () => null)
      const { body } = await api.request('POST', `${pathOf({ kind: (document as Answered).kind, namespace })}?dryRun=All`, here(document as Answered))
      const read = ({ labels = {}, annotations = {}, spec }: Answered) => ({ labels, annotations, spec })
      t.strictSame(verdict.outcome === 'accepted' && read(verdict.manifest), read({ ...body.metadata, spec: body.spec }), why)
    }
  })

  t.test('the API server reads YAML as the folder does', async (t) => {
    const takes = {
      displayName: (value: unknown) => value === null || typeof value === 'string',
      requestsPerMinute: (value: unknown) => value === null || (Number.isInteger(value) && Number(value) >= 1 && Number(value) <= 1_000_000),
    }
    for (const [written, value] of scalars) {
      for (const field of ['displayName', 'requestsPerMinute'] as const) {
        const plan = `${JSON.stringify(here(mediaPlan('studio'))).slice(0, -2)}, ${field}: ${written} }}`
        const { status, body } = await api.request('POST', `${pathOf({ kind: 'Plan', namespace })}?dryRun=All`, plan, 'application/yaml')
        t.equal(status, takes[field](value) ? 201 : 422, `${field}: ${written}: ${body.message}`)
        if (status === 201 && value !== null) t.equal(body.spec[field], value, `${field}: ${written}`)
      }
    }
  })

  t.test('the API server fills the same defaults in as the folder', async (t) => {
    const spec = async (document: Answered) => (await api.request('POST', `${pathOf({ kind: document.kind, namespace })}?dryRun=All`, here(document))).body.spec
    t.same(await spec(mediaPlan('studio')), {
      product: 'Media',
      state: 'Active',
      media: { allowance: '100.00', maxConcurrentTasks: 4, maxQueuedTasks: 1000, attempts: 3 },
      requestsPerMinute: 600,
      keyPolicy: { maxKeys: 5, rotationOverlapSeconds: 3600 },
    })
    t.match(await spec(codingPlan('coder')), { coding: { weights: { input: 1000, cachedInput: 1000, output: 1000 }, onAbort: 'Cancel', maxConcurrentRequests: 32, maxOutputTokens: 65_536, sessionWindow: { durationSeconds: 18_000 } } })
    t.same(await spec(apiKey('ci', 'coder')), { planRef: { name: 'coder' }, state: 'Active', rotationRevision: 0 })
  })

  t.test('kubectl finds the resources by short name, category and field selector, and shows future times', async (t) => {
    const run = (...args: string[]) => command(kubectl(), ['--kubeconfig', kubeconfig, '-n', namespace, ...args])
    for (const document of [codingPlan('coder'), codingPlan('paused', { state: 'Suspended' }), apiKey('ci', 'coder'), apiKey('other', 'paused')]) {
      await api.request('POST', pathOf({ kind: document['kind'] as 'Plan', namespace }), here(document))
    }
    t.match(await run('get', 'tgplan'), /NAME +PRODUCT +STATE +READY +REASON +KEYS +AGE\s+coder +Coding +Active/)
    t.match(await run('get', 'tgkey', '-o', 'wide'), /NAME +PLAN +STATE +READY +REASON +PREFIX +SECRET +REVISION +EXPIRES +AGE\s+ci +coder +Active/)
    const all = ['apikey.tollgate.dev/ci', 'apikey.tollgate.dev/other', 'plan.tollgate.dev/coder', 'plan.tollgate.dev/paused']
    t.same((await run('get', 'tollgate', '-o', 'name')).trim().split('\n').sort(), all)
    t.equal((await run('get', 'tgkey', '--field-selector', 'spec.planRef.name=coder', '-o', 'name')).trim(), 'apikey.tollgate.dev/ci')
    t.equal((await run('get', 'tgplan', '--field-selector', 'spec.state=Suspended', '-o', 'name')).trim(), 'plan.tollgate.dev/paused')
    await api.request('POST', pathOf({ kind: 'ApiKey', namespace }), here(apiKey('brief', 'coder', { expirationTime: '2099-01-01T00:00:00Z' })))
    const ofPlan = `${pathOf({ kind: 'Plan', namespace, name: 'coder' })}/status`
    t.equal((await api.request('PATCH', ofPlan, { status: { periodEndTime: '2098-01-01T00:00:00Z' } }, 'application/merge-patch+json')).status, 200)
    t.match(await run('get', 'tgkey', 'brief', '-o', 'wide'), / 2099-01-01T00:00:00Z +\d+s\s*$/)
    t.match(await run('get', 'tgplan', 'coder', '-o', 'wide'), / 2098-01-01T00:00:00Z +\d+s\s*$/)
    t.match(await run('explain', 'plan.spec.media.allowance'), /Amount granted per period/)
    for (const kind of ['plan', 'apikey'] as const) {
      const explained = await run('explain', kind, '--recursive')
      const { spec, status } = (await crdOf(kind)).spec.versions[0].schema.openAPIV3Schema.properties
      t.same(namesOf([spec, status]).filter((name) => !new RegExp(`^ +${name}\\t<`, 'm').test(explained)), [], kind)
    }
  })
}

t.test('every field of both CRDs has a description', async (t) => {
  for (const kind of ['plan', 'apikey'] as const) {
    const { spec, status } = (await crdOf(kind)).spec.versions[0].schema.openAPIV3Schema.properties
    t.same([...undescribed('spec', spec), ...undescribed('status', status)], [], kind)
  }
})

async function crdOf(kind: 'plan' | 'apikey'): Promise<Answered> {
  return parse(await readFile(new URL(`../../../crds/${kind}.yaml`, import.meta.url), 'utf8'))
}

function namesOf(schemas: Answered[]): string[] {
  return schemas.flatMap(({ properties = {}, items }) => [...Object.keys(properties), ...namesOf([...Object.values<Answered>(properties), ...(items ? [items] : [])])])
}

function undescribed(place: string, schema: Answered): string[] {
  const below = Object.entries<Answered>(schema.properties ?? {}).flatMap(([name, property]) => undescribed(`${place}.${name}`, property))
  return [...(schema.description ? [] : [place]), ...below, ...(schema.items?.properties ? undescribed(`${place}[]`, schema.items) : [])]
}

/** The part of a fault that both validators have: the field, and for a label or an annotation the error as well. */
function placeOf(fault: string): string {
  const [, place = '', why = ''] = /^(.*?): (.*)$/s.exec(fault) ?? []
  if (why.startsWith('unknown field')) return `unknown field "${place}"`
  // The server finds a wrong type while decoding, and names the field by its Go name.
  if (/^metadata\.(labels|annotations)/.test(place) && why.startsWith('must be ')) return place.replace(/^metadata(\.\w+).*/, 'ObjectMeta$1')
  const [, text, words] = /^(".*"): (.*)$/.exec(why) ?? []
  return text === undefined ? place : `${place}: Invalid value: ${text}: ${words}`
}
