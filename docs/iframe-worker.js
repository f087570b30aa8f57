"use strict";
// Browsers start no workers in pages opened from the disk. There, the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.answer(data);
      const script = inside.document.createElement("script");
      script.src = url;
      script.onload = () => {
        this.waiting.forEach((data) => this.send(data));
        this.waiting = null;
      };
      inside.document.body.append(script);
    }

    answer(data) {
      const message = new MessageEvent("message", { data });
      this.dispatchEvent(message);
      if (this.onmessage) this.onmessage(message);
    }

    send(data) {
      const inside = this.frame.contentWindow;
      inside.dispatchEvent(new inside.MessageEvent("message", { data }));
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else setTimeout(() => this.send(data));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
