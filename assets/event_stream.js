// Keeps the stream of a page's events open. The server ends the stream after the last event that it knows. A press at
// that moment would wait for ever, as the page still counts on the stream that ends. So this script asks for the stream
// again after the next press, and the page sees one stream that does not end.
{
  const {fetch} = window;
  const atWork = new Set(); // ids of events that have no result yet
  const earlyResults = new Set(); // ids of events whose result came before the answer to their press
  let resume = () => {}; // wakes the stream that waits for the next press: true to go on, false to end
  const COMPLETED = /^data: ?\{"msg":"process_completed","event_id":"(\w+)"/;
  const END = /^data: ?\{"msg":"close_stream"/;
  const UNKNOWN = /^data: ?\{"msg":"unexpected_error".*"session_not_found":true/;

  const nextPress = async () => atWork.size > 0 || new Promise((wake) => { resume = wake; });

  const begin = (event) => {
    if (earlyResults.delete(event)) return;
    atWork.add(event);
    resume(true);
  };

  const complete = (event) => {
    if (!atWork.delete(event)) earlyResults.add(event);
  };

  const pass = async (request, first, out) => {
    const encoder = new TextEncoder();
    let answer = first;
    let end = ''; // the message that ended the stream before
    while (answer) {
      const reader = answer.body.getReader();
      const decoder = new TextDecoder();
      answer = null;
      let text = '';
      for (;;) {
        const {done, value} = await reader.read();
        if (done) break;
        const messages = (text + decoder.decode(value, {stream: true})).split('\n\n');
        text = messages.pop();
        for (const message of messages) {
          const [, completed] = COMPLETED.exec(message) || [];
          if (completed) complete(completed);
          const isOver = end && UNKNOWN.test(message); // the server has forgotten what was at work
          if (isOver) atWork.clear();
          if (!END.test(message)) {
            out.enqueue(encoder.encode(`${isOver ? end : message}\n\n`));
          } else if (await nextPress()) {
            end = message;
            answer = await fetch(...request);
            if (!answer.ok) throw new Error(`the stream of events cannot go on: ${answer.status}`);
          }
        }
      }
      if (text) out.enqueue(encoder.encode(text));
    }
    out.close();
  };

  window.fetch = async (...request) => {
    const {pathname} = new URL(request[0]?.url || request[0], location.href);
    const answer = await fetch(...request);
    if (pathname.endsWith('/queue/join') && answer.ok) {
      const {event_id: event} = await answer.clone().json();
      if (event) begin(event);
    }
    if (!pathname.endsWith('/queue/data') || !answer.ok || !answer.body) return answer;
    resume(false); // the page no longer reads its last stream
    const body = new ReadableStream({start: (out) => { pass(request, answer, out).catch((error) => out.error(error)); }});
    return new Response(body, {status: answer.status, headers: answer.headers});
  };
}
