if [[ ]]; then A=1; fi
if [ ]; then B=1; fi
torchrun pretrain_gpt.py $A $B
