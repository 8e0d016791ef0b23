// The pages that a browser shows in the last step of a redirect login. They run no script, load nothing,
// cannot be framed, and escape every string that comes from outside.
import { escapeHtml, renderHtml, type HtmlReply } from '../../../kernel/http/pages/html.ts';

export { pageHeaders } from '../../../kernel/http/pages/html.ts';

export interface Page {
  title: string;
  paragraphs: readonly string[];
  /** Asks the person to compare the code and to confirm or cancel. */
  form?: { confirmation: string; userCode: string };
}

export type PageReply = HtmlReply;

export function renderPage({ title, paragraphs, form }: Page): PageReply {
  const body = [
    ...paragraphs.map((text) => `<p>${escapeHtml(text)}</p>`),
    ...(form ? [renderForm(form)] : []),
  ].join('\n');
  return renderHtml({ title, body });
}

// The form's address is relative to the callback's, so it also works under a path prefix.
function renderForm({ confirmation, userCode }: { confirmation: string; userCode: string }): string {
  return `<p class="code">${escapeHtml(userCode)}</p>
<form method="post" action="confirm">
<input type="hidden" name="confirmation" value="${escapeHtml(confirmation)}">
<button class="yes" name="decision" value="confirm">Yes, the codes are the same</button>
<button name="decision" value="cancel">No</button>
</form>`;
}
