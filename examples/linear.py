"""Two workers train one model, and one of them may be killed: tkv launch -n 2 -s 2 --restart 3 python examples/linear.py"""

import tensorkv as tkv
import torch
from tensorkv.torch import KVOptimizer

with tkv.kv.create("dist_sync") as kv:
    model = torch.nn.Linear(8, 1)
    opt = KVOptimizer(model.named_parameters(), kv, tkv.optimizer.Adam(learning_rate=0.003))
    while opt.steps < 1000:  # a worker that is started again goes on where the job is
        x = torch.randn(32, 8)
        opt.zero_grad()
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        loss.backward()
        opt.step()  # the servers sum the gradients of both workers and run Adam
        if opt.steps % 250 == 0:
            print(f"step {opt.steps}: loss {loss.item():.4f}")
