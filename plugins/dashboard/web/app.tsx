/** The page: the signed-out page, or the shell with the page of the address. */
import { useEffect, useState } from 'preact/hooks'
import { signedOut } from './api/client.ts'
import { loadPlans } from './api/plans.ts'
import { loadSession, session } from './api/session.ts'
import { Failed, Loading } from './components/states.tsx'
import { Toasts } from './components/toasts.tsx'
import { NotFound } from './pages/not-found.tsx'
import { SignedOut } from './pages/signed-out.tsx'
import { here } from './router.ts'
import { ROUTES, type Page } from './routes.ts'
import { Shell } from './shell.tsx'

/** Every page follows a change of the operator's within this time. */
const PLANS_MS = 5000

export function App() {
  const [error, setError] = useState<Error | null>(null)
  const start = () => {
    setError(null)
    return loadSession().catch(setError)
  }
  useEffect(() => void start(), [])
  const tenant = session.value?.tenant
  useEffect(() => {
    if (tenant === undefined) return undefined
    void loadPlans()
    const timer = setInterval(() => document.visibilityState === 'visible' && void loadPlans(), PLANS_MS)
    return () => clearInterval(timer)
  }, [tenant])

  if (signedOut.value) return <SignedOut />
  if (error) return <main class="alone">{<Failed error={error} retry={start} />}</main>
  if (!session.value) return <main class="alone">{<Loading lines={4} />}</main>
  return (
    <>
      <Shell>
        <CurrentPage key={tenant} />
      </Shell>
      <Toasts />
    </>
  )
}

/** The page of the address. It gets the focus on its heading, which also makes screen readers announce it. */
function CurrentPage() {
  const { path } = here.value
  const route = ROUTES.find(({ pattern }) => pattern.test(path))
  const [shown, setShown] = useState<{ path: string; page: Page } | null>(null)
  const [error, setError] = useState<Error | null>(null)
  useEffect(() => {
    let isCurrent = true
    setError(null)
    Promise.resolve(route?.load() ?? NotFound).then(
      (page) => isCurrent && setShown({ path, page }),
      () => isCurrent && setError(new Error('This page was replaced by a newer one. Reload to get it.')),
    )
    document.title = `${route?.title ?? 'Not found'}${session.value ? ` · ${session.value.brand}` : ''}`
    return () => void (isCurrent = false)
  }, [path])
  useFocusOnHeading(shown?.path)
  if (error) return <Failed error={error} retry={() => location.reload()} />
  if (shown?.path !== path) return <Loading lines={5} />
  return <shown.page key={path} id={decodeURIComponent(path.split('/').at(-1) ?? '')} />
}

function useFocusOnHeading(path: string | undefined): void {
  const [first, setFirst] = useState(true)
  useEffect(() => {
    if (path === undefined) return
    setFirst(false)
    if (!first) document.querySelector<HTMLElement>('main h1')?.focus({ preventScroll: true })
  }, [path])
}
