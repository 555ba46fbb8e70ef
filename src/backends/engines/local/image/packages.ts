/** Where the optional packages of the image operations are. Finding one loads nothing. */
import { findPackageJSON } from 'node:module'
import { dirname } from 'node:path'

/** The folder of an installed package, or null. */
export function packageFolder(name: string): string | null {
  try {
    const manifest = findPackageJSON(name, import.meta.url)
    return manifest === undefined ? null : dirname(manifest)
  } catch {
    return null
  }
}
