/** A cluster's certificates and users, in files of one folder. */
import { randomBytes } from 'node:crypto'
import { appendFile, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { command } from '../command.ts'

export type Authority = {
  /** Makes `<name>.key` and `<name>.crt`, with extensions in OpenSSL's syntax. */
  certificate(name: string, subject: string, ...extensions: string[]): Promise<void>
  /** Adds a user of `tokens.csv`, and writes its kubeconfig for `server`. */
  user(file: string, server: string, name: string, group?: string): Promise<void>
}

/** Makes `ca.key` and `ca.crt`, and `sa.key` with `sa.pub` for the tokens of ServiceAccounts. */
export async function openAuthority(folder: string): Promise<Authority> {
  const openssl = (...args: string[]) => command('openssl', args, folder)
  const key = (name: string) => openssl('ecparam', '-name', 'prime256v1', '-genkey', '-noout', '-out', `${name}.key`)
  await Promise.all([key('ca'), key('sa')])
  await openssl('req', '-x509', '-new', '-key', 'ca.key', '-subj', '/CN=test-ca', '-days', '2', '-out', 'ca.crt')
  await openssl('ec', '-in', 'sa.key', '-pubout', '-out', 'sa.pub')
  const ca = (await readFile(join(folder, 'ca.crt'))).toString('base64')
  let users = 0
  return {
    async certificate(name, subject, ...extensions) {
      await Promise.all([key(name), writeFile(join(folder, `${name}.ext`), extensions.join('\n'))])
      await openssl('req', '-new', '-key', `${name}.key`, '-subj', subject, '-out', `${name}.csr`)
      const serial = ['-set_serial', `0x${randomBytes(8).toString('hex')}`]
      await openssl('x509', '-req', '-in', `${name}.csr`, '-CA', 'ca.crt', '-CAkey', 'ca.key', ...serial, '-days', '2', '-extfile', `${name}.ext`, '-out', `${name}.crt`)
    },
    async user(file, server, name, group) {
      const token = randomBytes(24).toString('hex')
      await appendFile(join(folder, 'tokens.csv'), `${token},${name},${++users}${group === undefined ? '' : `,"${group}"`}\n`, { mode: 0o600 })
      const config = {
        apiVersion: 'v1',
        kind: 'Config',
        clusters: [{ name: 'test', cluster: { server, 'certificate-authority-data': ca } }],
        users: [{ name: 'user', user: { token } }],
        contexts: [{ name: 'test', context: { cluster: 'test', user: 'user' } }],
        'current-context': 'test',
      }
      await writeFile(join(folder, file), JSON.stringify(config), { mode: 0o600 })
    },
  }
}
