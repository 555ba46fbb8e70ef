/** Requests to a test's API server as its administrator, or with another token; independent of the client under test. */
import { readFile } from 'node:fs/promises'
import { setTimeout as pause } from 'node:timers/promises'
import { Agent } from 'undici'
import { parse } from 'yaml'

export type Api = {
  /** A string body is sent verbatim. Rejects when there is no answer. */
  request(method: string, path: string, body?: unknown, contentType?: string): Promise<{ status: number; body: Answered }>
  /** Server-side apply. */
  apply(path: string, body: unknown): Promise<{ status: number; body: Answered }>
  server: string
  ca: Buffer
  token: string
  close(): Promise<void>
}

// Objects of any kind: the tests assert their shape.
// oxlint-disable-next-line typescript/no-explicit-any
export type Answered = any

export async function openApi(kubeconfig: string, asToken?: string): Promise<Api> {
  const { clusters, users } = parse(await readFile(kubeconfig, 'utf8'))
  const { server, 'certificate-authority-data': data } = clusters[0].cluster
  const ca = Buffer.from(data, 'base64')
  const token: string = asToken ?? users[0].user.token
  const agent = new Agent({ connect: { ca }, allowH2: false })

  const request: Api['request'] = async (method, path, body, contentType = 'application/json') => {
    const answer = await agent.request({
      origin: server,
      path,
      method: method as 'GET',
      headers: { authorization: `Bearer ${token}`, accept: 'application/json', ...(body !== undefined && { 'content-type': contentType }) },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    })
    const text = await answer.body.text()
    return { status: answer.statusCode, body: text.startsWith('{') ? JSON.parse(text) : text }
  }

  return {
    request,
    apply: (path, body) => request('PATCH', `${path}?fieldManager=test&force=true`, body, 'application/apply-patch+yaml'),
    server,
    ca,
    token,
    close: () => agent.close(),
  }
}

const installed = new Map<string, Promise<void>>()

/** Installs both CRDs of `crds/`, once, and waits until the server serves them. */
export function installCrds(api: Api): Promise<void> {
  const installing = installed.get(api.server) ?? install(api)
  installed.set(api.server, installing)
  return installing
}

async function install({ apply, request }: Api): Promise<void> {
  for (const [file, name, plural] of [['plan.yaml', 'plans.tollgate.dev', 'plans'], ['apikey.yaml', 'apikeys.tollgate.dev', 'apikeys']] as const) {
    const crd = parse(await readFile(new URL(`../../../crds/${file}`, import.meta.url), 'utf8'))
    const { status, body } = await apply(`/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${name}`, crd)
    if (status !== 200 && status !== 201) throw new Error(`the CRD ${name} was answered ${status}: ${body.message}`)
    while ((await request('GET', `/apis/tollgate.dev/v1alpha1/${plural}?limit=1`)).status !== 200) await pause(50)
  }
}

const ARE = { Plan: 'plans', ApiKey: 'apikeys' } as const

/** The path of a Plan or ApiKey; of all of a namespace without a name. */
export function pathOf({ kind, namespace, name }: { kind: keyof typeof ARE; namespace: string; name?: string }): string {
  const collection = `/apis/tollgate.dev/v1alpha1/namespaces/${namespace}/${ARE[kind]}`
  return name === undefined ? collection : `${collection}/${name}`
}

export async function makeNamespace({ request }: Api, name: string): Promise<void> {
  const { status, body } = await request('POST', '/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata: { name } })
  if (status !== 201) throw new Error(`the namespace ${name} was answered ${status}: ${body.message}`)
}
