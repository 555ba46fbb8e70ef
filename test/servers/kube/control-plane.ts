/** A control plane without nodes: etcd, the API server with RBAC and the controller manager, on loopback ports and without root. */
import { mkdir, readFile } from 'node:fs/promises'
import { request } from 'node:https'
import { join } from 'node:path'
import { freePort, start, type Running } from '../process.ts'
import { serve, type Server } from '../server.ts'
import { openAuthority } from './authority.ts'

export type ControlPlane = Server & {
  /** Path of an administrator's kubeconfig; `url` is the same path, for the common interface of the test servers. */
  kubeconfig: string
  url: string
  /** SIGKILL of the API server only, and its restart. */
  killApiServer(): Promise<void>
  startApiServer(): Promise<void>
  /** etcd's address, for maintenance such as compaction. */
  etcd: string
}

type Ports = { etcd: number; peer: number; api: number }

const NAMES = ['DNS:localhost', 'DNS:kubernetes', 'DNS:kubernetes.default', 'DNS:kubernetes.default.svc', 'IP:127.0.0.1', 'IP:10.0.0.1']

async function prepare(folder: string, port: number): Promise<void> {
  const [authority] = await Promise.all([openAuthority(folder), mkdir(join(folder, 'etcd'), { mode: 0o700 })])
  await authority.certificate('api', '/CN=kube-apiserver', `subjectAltName=${NAMES.join(',')}`, 'extendedKeyUsage=serverAuth')
  await authority.certificate('admin', '/O=system:masters/CN=admin-by-certificate', 'extendedKeyUsage=clientAuth')
  const server = `https://127.0.0.1:${port}`
  await authority.user('kubeconfig', server, 'admin', 'system:masters')
  await authority.user('manager.kubeconfig', server, 'system:kube-controller-manager')
}

function startEtcd(assets: string, folder: string, { etcd, peer }: Ports): Promise<Running> {
  const [client, between] = [`http://127.0.0.1:${etcd}`, `http://127.0.0.1:${peer}`]
  const addresses = ['--listen-client-urls', client, '--advertise-client-urls', client, '--listen-peer-urls', between, '--initial-advertise-peer-urls', between, '--initial-cluster', `test=${between}`]
  return start({
    argv: [join(assets, 'etcd'), '--name', 'test', '--data-dir', join(folder, 'etcd'), '--unsafe-no-fsync', '--log-level', 'warn', ...addresses],
    ready: () => fetch(`${client}/health`).then(({ ok }) => ok, () => false),
  })
}

async function startApiServer(assets: string, folder: string, { etcd, api }: Ports, flags: string[]): Promise<Running> {
  const at = (file: string) => join(folder, file)
  const ca = await readFile(at('ca.crt'))
  return start({
    argv: [
      join(assets, 'kube-apiserver'),
      `--etcd-servers=http://127.0.0.1:${etcd}`,
      '--bind-address=127.0.0.1',
      '--advertise-address=127.0.0.1',
      `--secure-port=${api}`,
      '--endpoint-reconciler-type=none',
      `--tls-cert-file=${at('api.crt')}`,
      `--tls-private-key-file=${at('api.key')}`,
      `--client-ca-file=${at('ca.crt')}`,
      `--token-auth-file=${at('tokens.csv')}`,
      '--authorization-mode=RBAC',
      '--service-account-issuer=https://kubernetes.default.svc',
      `--service-account-key-file=${at('sa.pub')}`,
      `--service-account-signing-key-file=${at('sa.key')}`,
      '--service-cluster-ip-range=10.0.0.0/24',
      '--profiling=false',
      ...flags,
    ],
    ready: () => isReady(api, ca),
  })
}

function startManager(assets: string, folder: string): Promise<Running> {
  return start({
    argv: [
      join(assets, 'kube-controller-manager'),
      `--kubeconfig=${join(folder, 'manager.kubeconfig')}`,
      // It serves nothing, so it needs no port.
      '--secure-port=0',
      '--leader-elect=false',
      '--use-service-account-credentials',
      `--service-account-private-key-file=${join(folder, 'sa.key')}`,
      `--root-ca-file=${join(folder, 'ca.crt')}`,
      '--profiling=false',
    ],
    ready: async () => true,
  })
}

function isReady(port: number, ca: Buffer): Promise<boolean> {
  return new Promise((resolve) => {
    const asked = request({ host: '127.0.0.1', port, path: '/readyz', ca, timeout: 2_000, agent: false }, (response) => {
      response.resume()
      resolve(response.statusCode === 200)
    })
    asked.on('error', () => resolve(false)).on('timeout', () => asked.destroy()).end()
  })
}

/** `assets` is the folder of the programs, `apiServerFlags` are additional flags of the API server. */
export async function startControlPlane(assets: string, apiServerFlags: string[] = []): Promise<ControlPlane> {
  const ports: Ports = { etcd: await freePort(), peer: await freePort(), api: await freePort() }
  let kubeconfig = ''
  let api: Running | null = null
  const server = await serve(
    async (folder) => {
      await prepare(folder, ports.api)
      kubeconfig = join(folder, 'kubeconfig')
    },
    async (folder, running) => {
      running.push(await startEtcd(assets, folder, ports))
      api = await startApiServer(assets, folder, ports, apiServerFlags)
      running.push(api)
      running.push(await startManager(assets, folder))
    },
  )
  const folder = join(kubeconfig, '..')
  let later: Running | null = null
  const stop = async () => {
    await later?.kill()
    await server.stop()
  }
  return {
    ...server,
    kubeconfig,
    url: kubeconfig,
    etcd: `http://127.0.0.1:${ports.etcd}`,
    stop,
    async kill() {
      await later?.kill()
      await server.kill()
    },
    async killApiServer() {
      await api?.kill()
    },
    async startApiServer() {
      api = later = await startApiServer(assets, folder, ports, apiServerFlags)
    },
  }
}
