/** A browser for the tests that all browsers pass: Firefox by playwright-core, and WebKitGTK by its own driver. Elements are found by XPath. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { firefox } from 'playwright-core'
import type { Test } from 'tap'
import { eventually } from '../flows/eventually.ts'
import { freePort } from '../servers/process.ts'

export type Driven = {
  open(url: string): Promise<void>
  /** The JSON value of an expression of the page, a promise awaited. */
  read<T>(expression: string): Promise<T>
  /** Clicks as a person does. Waits until there is such an element. */
  click(xpath: string): Promise<void>
  type(xpath: string, text: string): Promise<void>
}

/** Opens a window of 1280 × 800. `executable` is Firefox; the test closes it. */
export async function openFirefox(t: Test, executable: string): Promise<Driven> {
  const browser = await firefox.launch({ channel: 'moz-firefox', executablePath: join(import.meta.dirname, 'firefox.mjs'), env: { ...(process.env as Record<string, string>), FIREFOX: executable }, timeout: 120_000 })
  t.teardown(() => browser.close())
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } })
  page.setDefaultTimeout(120_000)
  return {
    open: async (url) => void (await page.goto(url)),
    read: (expression) => page.evaluate(expression),
    click: (xpath) => page.locator(`xpath=${xpath}`).first().click(),
    type: (xpath, text) => page.locator(`xpath=${xpath}`).first().fill(text),
  }
}

/** Opens a window in a display of its own. `executable` is WebKitWebDriver, which starts the browser that belongs to it. */
export async function openWebKit(t: Test, executable: string): Promise<Driven> {
  const display = spawn('Xvfb', ['-displayfd', '3', '-screen', '0', '1400x1000x24', '-nolisten', 'tcp'], { stdio: ['ignore', 'ignore', 'ignore', 'pipe'] })
  t.teardown(() => void display.kill())
  const [number] = (await once(display.stdio[3] as Readable, 'data')) as [Buffer]
  const port = await freePort()
  // Without a language it says that it is C, which is no language to Intl.
  const env = { ...process.env, DISPLAY: `:${number.toString().trim()}`, LANG: 'en_GB.UTF-8', GSETTINGS_BACKEND: 'memory' }
  const driver = spawn(executable, [`--port=${port}`], { stdio: 'ignore', env })
  t.teardown(() => void driver.kill())

  /** A command of WebDriver (https://www.w3.org/TR/webdriver2/). */
  async function command<T>(method: string, path: string, body?: object): Promise<T> {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, { method, ...(body ? { body: JSON.stringify(body) } : {}) })
    const { value } = (await response.json()) as { value: T & { error?: string; message?: string } }
    if (!response.ok) throw new Error(`${path}: ${value.error}: ${value.message}`)
    return value
  }
  await eventually('the driver', () => command('GET', '/status').catch(() => null))
  const { sessionId } = await command<{ sessionId: string }>('POST', '/session', { capabilities: {} })
  const session = `/session/${sessionId}`
  t.teardown(() => command('DELETE', session))
  await command('POST', `${session}/window/rect`, { width: 1280, height: 800 })

  /** Finds an element and does something with it, until both succeed. */
  async function act(xpath: string, verb: string, body: object): Promise<void> {
    let failure: unknown
    const tried = async () => {
      const [id] = Object.values(await command<Record<string, string>>('POST', `${session}/element`, { using: 'xpath', value: xpath }))
      await command('POST', `${session}/element/${id}/${verb}`, body)
      return true
    }
    await eventually(`${verb}: ${xpath}`, () => tried().catch((error: unknown) => ((failure = error), null))).catch((error: unknown) => {
      throw new Error(String(error), { cause: failure })
    })
  }
  return {
    open: async (url) => void (await command('POST', `${session}/url`, { url })),
    read: (expression) => command('POST', `${session}/execute/sync`, { script: `return (${expression})`, args: [] }),
    click: (xpath) => act(xpath, 'click', {}),
    async type(xpath, text) {
      await act(xpath, 'clear', {})
      await act(xpath, 'value', { text })
    },
  }
}
