/** What drills on a node begin with: the chart, and the plans and keys of a tenant. */
import { writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Test } from 'tap'
import { CHART, helm } from '../chart/chart.ts'
import type { Caller } from '../flows/calls.ts'
import type { Keys } from '../pods/load.ts'
import { documents, KEYS, NAMESPACE, PLANS } from '../pods/manifests.ts'
import { GATE, secrets, TENANT, values, type Site } from '../pods/site.ts'
import { installed } from '../servers/client.ts'
import type { Answered } from '../servers/kube/api.ts'
import { folderFor } from '../temporary-folder.ts'

export type Read = (...args: string[]) => Promise<Answered>

/** What `kubectl get` answers. */
export const reader = ({ kubectl }: Site): Read => async (...args) => JSON.parse(await kubectl(['get', '--output=json', ...args]))

/** Installs these CRDs of other projects, the chart with the values, and the plans and keys of the tenant. */
export async function install(t: Test, site: Site, crds: string[], more: object): Promise<{ gateway: Caller; keys: Keys }> {
  const { kubectl, node } = site
  const read = reader(site)
  for (const crd of crds) await kubectl(['apply', '--server-side', '--filename', join(dirname(installed('chart-crds')), `${crd}.yaml`)])
  await kubectl(['apply', '--filename', '-'], { input: documents([{ ...NAMESPACE, metadata: { ...NAMESPACE.metadata, name: GATE } }, NAMESPACE]) })
  await kubectl(['apply', '--filename', '-'], { input: documents(secrets(site)) })
  const file = join(await folderFor(t), 'values.yaml')
  await writeFile(file, JSON.stringify({ ...values(site, '1'), ...more }))
  await helm(['install', 'tollgate', CHART, '--namespace', GATE, '--values', file, '--wait', '--timeout', '900s'], node.kubeconfig)
  await kubectl(['apply', '--filename', '-'], { input: documents([...PLANS, ...KEYS]) })
  await kubectl(['wait', 'plans,apikeys', '--all', '--namespace', TENANT, '--for=condition=Ready', '--timeout=300s'])
  const keyOf = async (name: string) => Buffer.from((await read('secret', name, '--namespace', TENANT)).data['api-key'], 'base64').toString()
  const { clusterIP } = (await read('service', 'tollgate-gateway', '--namespace', GATE)).spec
  return { gateway: { url: `http://${clusterIP}` }, keys: { coding: await keyOf('coding-key'), media: await keyOf('media-key') } }
}
