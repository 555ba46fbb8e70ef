import { PageHead } from '../components/card.tsx'
import { Empty } from '../components/states.tsx'
import { hrefOf } from '../router.ts'

export function NotFound() {
  return (
    <>
      <PageHead title="Not found" />
      <Empty
        icon="info"
        title="There is no page at this address"
        action={
          <a class="button primary" href={hrefOf('/')}>
            Home
          </a>
        }
      >
        The link may be incomplete, or of an earlier version.
      </Empty>
    </>
  )
}
