/** What a person does first, in the browsers beside Chromium: the whole page works there too. Chromium runs `pages.test.ts` and `room.test.ts`. */
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import t, { type Test } from 'tap'
import { chat } from '../flows/calls.ts'
import { need } from '../servers/client.ts'
import { PAGES } from './accessibility.ts'
import { openProgram, signInLink, until, type Program } from './dashboard.ts'
import { openFirefox, openWebKit, type Driven } from './driven.ts'
import { demoKey } from './usage.ts'

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

const button = (name: string) => `//button[normalize-space()="${name}" or @aria-label="${name}"]`
const shows = (text: string) => `document.querySelector('main')?.innerText.includes(${JSON.stringify(text)}) === true`

/** The violations of WCAG and good practice on the page as it is now. */
const violations = (browser: Driven): Promise<string[]> =>
  browser.read(`(() => { ${AXE}; return window.axe.run().then(({ violations }) => violations.map(({ id, nodes }) => id + ': ' + nodes.map(({ html }) => html.slice(0, 120)).join(' | '))) })()`)

async function pageTests(t: Test, program: Program, browser: Driven): Promise<void> {
  const { url } = program.process
  const sees = (text: string) => until(text, () => browser.read<boolean>(shows(text)))
  /** Opens a page and notes what its policy refuses. */
  async function open(path: string): Promise<void> {
    await browser.open(`${url}/dashboard${path}`)
    await browser.read(`(window.refused = [], document.addEventListener('securitypolicyviolation', ({ violatedDirective }) => window.refused.push(violatedDirective)), null)`)
  }
  const refused = () => browser.read<string[]>('window.refused')

  await t.test('the link signs in, and leads home', async (t) => {
    await browser.open(signInLink(program.process))
    await sees('Plans')
    t.equal(new URL(await browser.read<string>('location.href')).pathname, '/dashboard/')
  })

  await t.test('an image is made: the price first, progress, and the result on the stage and in the gallery', async (t) => {
    await open('/room')
    await browser.type('//textarea', 'Red boats on a quiet lake')
    await until('the price', () => browser.read<boolean>(`document.querySelector('.price[data-state="quoted"]')?.innerText.startsWith('0.04 credits') === true`))
    await browser.click(button('Create'))
    await until('the result', () => browser.read<boolean>(`document.querySelector('.room-stage img')?.naturalWidth > 0`))
    await until('the gallery', () => browser.read<boolean>(`document.querySelector('.gallery-item img')?.naturalWidth > 0`))
    t.same(await refused(), [])
    t.same(await violations(browser), [])
  })

  await t.test('a key is revealed, is in the configurations, and leaves the page when it is hidden', async (t) => {
    await open('/keys')
    await browser.click(button('Reveal coding'))
    const key = await demoKey(program, 'coding')
    const holds = () => browser.read<boolean>(`document.querySelector('main').innerText.includes(${JSON.stringify(key)})`)
    await until('the key', holds)
    t.ok(await browser.read(`document.querySelector('.clients').innerText.includes(${JSON.stringify(key)})`))
    await browser.click(button('Hide'))
    await until('no key', async () => !(await holds()))
    t.same(await refused(), [])
  })

  await t.test('usage moves while the page is open, as a chart, as a table and request by request', async (t) => {
    await open('/usage/coding')
    await sees('Begins with the next request')
    t.equal((await chat(program.process, await demoKey(program, 'coding'))).status, 200)
    await sees('Resets in')
    await until('the chart', () => browser.read<boolean>(`document.querySelector('.chart-stack i')?.getBoundingClientRect().height > 50`))
    await browser.click('//summary[normalize-space()="Show as a table"]')
    await sees('Of it cached')
    await until('the request', () => browser.read<boolean>(`[...document.querySelectorAll('table')].at(-1)?.innerText.includes('Completed') === true`))
    t.same(await refused(), [])
  })

  await t.test('axe finds nothing on any page, in either theme, and none is wider than the window', async (t) => {
    for (const theme of ['Light', 'Dark']) {
      for (const { path, has } of PAGES) {
        await open(path)
        await browser.click(`//label[@title="${theme}"]`)
        await sees(has)
        t.same(await violations(browser), [], `${path}, ${theme}`)
        t.ok(await browser.read('document.documentElement.scrollWidth <= innerWidth'), path)
      }
    }
  })

  await t.test('sign-out ends the session', async () => {
    await browser.click(button('Sign out'))
    await until('the end', () => browser.read<boolean>(`document.body.innerText.includes('You are signed out')`))
  })
}

for (const [name, openBrowser] of [['firefox', openFirefox], ['webkit', openWebKit]] as const) {
  t.test(`the dashboard in ${name}`, async (t) => {
    const executable = need(t, name)
    if (executable === null) return
    const program = await openProgram(t)
    await pageTests(t, program, await openBrowser(t, executable))
  })
}
