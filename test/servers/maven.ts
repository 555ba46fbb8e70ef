import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Entry } from './cache.ts'
import { command } from './command.ts'

type Artifact = { groupId: string; artifactId: string; version: string }

/** The plugin's version is pinned like the artifacts: otherwise Maven uses the one that it was built with. */
const COPY = 'org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy-dependencies'

const elements = (of: Partial<Artifact>): string => Object.entries(of).map(([key, value]) => `<${key}>${value}</${key}>`).join('')

function pom(artifacts: Artifact[], excluded: Partial<Artifact>[]): string {
  const exclusions = excluded.map((one) => `<exclusion>${elements(one)}</exclusion>`).join('')
  const dependencies = artifacts.map((one) => `<dependency>${elements(one)}<exclusions>${exclusions}</exclusions></dependency>`).join('')
  const own = elements({ groupId: 'tollgate', artifactId: 'test-server', version: '1' })
  return `<project><modelVersion>4.0.0</modelVersion>${own}<packaging>pom</packaging><dependencies>${dependencies}</dependencies></project>\n`
}

/** An entry that is Java: the artifacts and what they need at run time, as jars in `lib`. The program is that folder, for `java -cp 'lib/*'`. */
export function mavenArtifacts(name: string, version: string, artifacts: Artifact[], excluded: Partial<Artifact>[]): Entry {
  return {
    name,
    version,
    program: 'lib',
    async lacks() {
      const java = await command('java', ['-version']).catch(() => '')
      const [, release] = /version "(\d+)/.exec(java) ?? []
      if (!(Number(release) >= 17)) return 'needs Java 17 or newer (on Debian: apt-get install openjdk-17-jre-headless)'
      return command('mvn', ['--version']).then(() => null, () => 'needs Maven (on Debian: apt-get install maven)')
    },
    async install(folder) {
      await writeFile(join(folder, 'pom.xml'), pom(artifacts, excluded))
      await command('mvn', ['-B', '-q', COPY, '-DincludeScope=runtime', `-DoutputDirectory=${join(folder, 'lib')}`], folder)
    },
  }
}
